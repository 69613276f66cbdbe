"""What a changed case has to keep to: the rules that the spec declares."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from gradverify.case import Bernoulli, Case, ExploreRules, SizeRange
from gradverify.exploration.inputs import plain_inputs, tensor_inputs, value_at
from gradverify.formula import FormulaError, evaluate, parse


def why_not(case: Case, values: Mapping[str, Any], binary: Collection[str] = ()) -> str:
    """Return which rule the case breaks, "" if none; `values` are its inputs by name, `binary` those of 0 and 1."""
    rules = case.explore
    for name, size in case.dims.items():
        if not allowed(case, name, size):
            return f"{name} may not be {size}"
    for path in tensor_inputs(case):
        name = path.partition("[")[0]
        found = value_at(values, path)
        found = found.detach() if isinstance(found, Tensor) else found
        if isinstance(found, Tensor) and found.numel() and not found.is_complex():
            reason = _out_of_range(rules, name, float(found.min()), float(found.max())) or _bad_index(case, name, found)
            if reason:
                return reason
            if path in binary and not bool(((found == 0) | (found == 1)).all()):
                return f"{path} has other values than 0 and 1"
    for name, value in plain_inputs(case, {}).items():
        entries = value if isinstance(value, list | tuple) else (value,)
        numbers = [entry for entry in entries if isinstance(entry, int | float) and not isinstance(entry, bool)]
        reason = _out_of_range(rules, name, min(numbers), max(numbers)) if numbers else ""
        if reason:
            return reason
    return _unmet(case, values)


def binary_inputs(written: Case) -> tuple[str, ...]:
    """Return the paths of the inputs that are drawn from 0 and 1: changed ones have no other values either."""
    return tuple(path for path, given in tensor_inputs(written).items() if isinstance(given.origin, Bernoulli))


def index_limit(case: Case, path: str) -> int | None:
    """Return the number that the values of an integer input stay below, None if it is not declared."""
    rule = case.explore.indices.get(path.partition("[")[0])
    if rule is None or rule.below is None:
        return None
    return rule.below if isinstance(rule.below, int) else int(evaluate(parse(rule.below), case.dims))


def finite_range(case: Case, path: str) -> tuple[float, float] | None:
    """Return the range that the spec gives the values of an input, None if it gives none or one without an end."""
    low, high = case.explore.ranges.get(path.partition("[")[0], (math.inf, math.inf))
    return (low, high) if low < high and math.isfinite(high - low) else None


def allowed(case: Case, name: str, size: int) -> bool:
    """Return True if a dimension may have this size."""
    rule = case.explore.sizes.get(name, SizeRange(low=0))
    return rule.low <= size <= (size if rule.high is None else rule.high) and size % rule.multiple_of == 0


def _out_of_range(rules: ExploreRules, name: str, least: float, most: float) -> str:
    low, high = rules.ranges.get(name, (least, most))
    return "" if low <= least and most <= high else f"{name} leaves [{low:g}, {high:g}]"


def _bad_index(case: Case, name: str, found: Tensor) -> str:
    rule = case.explore.indices.get(name)
    if rule is None or found.is_floating_point():
        return ""
    below = index_limit(case, name)
    ordinary = found if not rule.special else found[_none_of(found, rule.special)]
    if not ordinary.numel() or (int(ordinary.min()) >= 0 and (below is None or int(ordinary.max()) < below)):
        return ""
    return f"{name} is no index"


def _none_of(found: Tensor, special: tuple[int, ...]) -> Tensor:
    outside = found != special[0]
    for value in special[1:]:
        outside &= found != value
    return outside


def _unmet(case: Case, values: Mapping[str, Any]) -> str:
    if not case.explore.require:
        return ""
    try:
        met = bool(evaluate(parse(case.explore.require), {**case.dims, **values}))
    except (FormulaError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return f"`require` could not be evaluated: {error}"
    return "" if met else "`require` is not met"
