"""What `explore` must not say about the inputs and dims of its case; each rule yields the issues it finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from gradverify.case import INIT, ExploreRules, IndexRange, Input, Literal, SizeArgument, SizeRange, TupleArgument
from gradverify.formula import FormulaError, evaluate, names_of, parse
from gradverify.spec.dims import size_of
from gradverify.spec.explore_keys import same_value
from gradverify.spec.explore_values import (
    Shaped,
    extremes,
    first_outside,
    is_numeric,
    is_whole,
    kind_of,
    known_values,
    written,
)
from gradverify.spec.limits import MAX_ERRORS
from gradverify.spec.readers import BadValueError, Issue
from gradverify.spec.wording import found, meant_or_known, shortened, shown

_MOST_NAMES = 100  # that a name is compared with


def explore_issues(rules: ExploreRules, dims: Mapping[str, int], inputs: Mapping[str, Input | None]) -> Iterator[Issue]:
    """Yield what is wrong with rules, seen from the case; an input is None where it could not be read."""
    issues = chain(
        _sizes(rules.sizes, dims, inputs),
        _inputs(rules, dims, inputs),
        _fixed(rules.fixed, dims, inputs),
        _require(rules.require, dims, inputs),
    )
    yield from (replace(issue, at=("explore", *issue.at)) for issue in islice(issues, MAX_ERRORS))


def _sizes(sizes: Mapping[str, SizeRange], dims: Mapping[str, int], inputs: Iterable[str]) -> Iterator[Issue]:
    for name, allowed in sizes.items():
        at = ("sizes", name)
        if name not in dims:
            of_input = "it is an input: see `ranges`, `indices` and `choices`" if name in inputs else ""
            hint = of_input or _near(name, dims) or "sizes get their names in `dims`"
            yield Issue(at=at, on_key=True, problem=f"there is no size `{shortened(name)}`", hint=hint)
        elif dims[name] < allowed.low or (allowed.high is not None and dims[name] > allowed.high):
            least = f"from {allowed.low} to {allowed.high}" if allowed.high is not None else f"at least {allowed.low}"
            yield Issue(at=at, problem=f"`dims` has {name}: {dims[name]}, which is not {least}")
        elif dims[name] % allowed.multiple_of:
            problem = f"`dims` has {name}: {dims[name]}, which is no multiple of {allowed.multiple_of}"
            yield Issue(at=(*at, "multiple_of"), problem=problem)


def _inputs(rules: ExploreRules, dims: Mapping[str, int], inputs: Mapping[str, Input | None]) -> Iterator[Issue]:
    """Yield issues of `ranges`, `indices` and `choices`, whose keys are names of inputs."""
    for key, names in (("ranges", rules.ranges), ("indices", rules.indices), ("choices", rules.choices)):
        for name in names:
            if name not in inputs:
                hint = "it is a size: see `sizes`" if name in dims else _near(name, inputs)
                yield Issue(at=(key, name), on_key=True, problem=f"there is no input `{shortened(name)}`", hint=hint)
    for name, index_range in rules.indices.items():
        yield from _below(("indices", name), index_range, dims)
    for name, value in inputs.items():
        if value is None:
            continue
        if name in rules.ranges:
            yield from _range(("ranges", name), value, rules.ranges[name])
        if name in rules.indices:
            yield from _index_range(("indices", name), value, rules.indices[name], dims)
        if name in rules.choices:
            yield from _choices(("choices", name), value, rules.choices[name])


def _fixed(names: Iterable[str], dims: Mapping[str, int], inputs: Iterable[str]) -> Iterator[Issue]:
    for index, name in enumerate(names):
        if name not in dims and name not in inputs and not name.startswith(INIT):  # which may be a default
            yield replace(_neither(name, dims, inputs), at=("fixed", index))


def _near(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest of the first names, or all of them."""
    return meant_or_known(name, tuple(islice(known, _MOST_NAMES)))


def _neither(name: str, dims: Iterable[str], inputs: Iterable[str]) -> Issue:
    hint = _near(name, (*inputs, *dims))
    return Issue(problem=f"`{shortened(name)}` is neither an input nor a size", hint=hint)


def _range(at: tuple[str, str], value: Input, allowed: tuple[float, float]) -> Iterator[Issue]:
    name, (low, high) = at[1], allowed
    if not is_numeric(value):
        problem = f"ranges are for numbers and tensors, `{name}` is {kind_of(value)}"
        yield Issue(at=at, on_key=True, problem=problem, hint="list what it may be in `choices`")
        return
    values = extremes(value)
    if values and (min(values) < low or max(values) > high):
        least, most = shown(float(min(values))), shown(float(max(values)))
        has = f"{name}: {least}" if least == most else f"`{name}` from {least} to {most}"
        yield Issue(at=at, problem=f"`inputs` has {has}, which goes beyond [{shown(low)}, {shown(high)}]")


def _below(at: tuple[str, str], allowed: IndexRange, dims: Mapping[str, int]) -> Iterator[Issue]:
    try:
        if isinstance(allowed.below, str) and size_of(allowed.below, dims) < 1:
            problem = f"`{shortened(allowed.below)}` is {size_of(allowed.below, dims)}, so no index is below it"
            yield Issue(at=(*at, "below"), problem=problem)
    except BadValueError as reason:
        yield from (replace(issue, at=(*at, "below")) for issue in reason.issues)


def _index_range(at: tuple[str, str], value: Input, allowed: IndexRange, dims: Mapping[str, int]) -> Iterator[Issue]:
    try:
        below = size_of(allowed.below, dims) if isinstance(allowed.below, str) else allowed.below
    except BadValueError:
        return
    if below is not None and below < 1:
        return
    if not is_whole(value):
        problem = f"indices are for whole numbers, `{at[1]}` is {kind_of(value)}"
        hint = "use `ranges`" if is_numeric(value) else "list what it may be in `choices`"
        yield Issue(at=at, on_key=True, problem=problem, hint=hint)
        return
    outside = first_outside(value, below, frozenset(allowed.special))
    if outside is not None:
        inside = f"from 0 to {below - 1}" if below is not None else "0 or more"
        problem = f"`inputs` has {outside} in `{at[1]}`, which is not {inside}"
        yield Issue(at=at, problem=problem, hint=f"name it in `special`: [{outside}]")


def _choices(at: tuple[str, str], value: Input, allowed: tuple[Any, ...]) -> Iterator[Issue]:
    if not isinstance(value, Literal | TupleArgument | SizeArgument):
        problem = f"choices are for plain values, `{at[1]}` is {kind_of(value)}"
        yield Issue(at=at, on_key=True, problem=problem)
    elif not any(same_value(written(value), choice) for choice in allowed):
        yield Issue(at=at, problem=f"`inputs` has {found(written(value))}, which is not among the choices")


def _require(text: str, dims: Mapping[str, int], inputs: Mapping[str, Input | None]) -> Iterator[Issue]:
    if not text:
        return
    formula = parse(text)
    unknown = [name for name in names_of(formula) if name not in dims and name not in inputs]
    yield from (replace(_neither(name, dims, inputs), at=("require",)) for name in unknown)
    known = {**dims, **known_values(inputs)}
    try:
        holds = evaluate(formula, known)
    except FormulaError as reason:
        # A tensor has no entries before it is drawn: then nothing is wrong.
        if not any(isinstance(known.get(name, Shaped(shape=())), Shaped) for name in names_of(formula)):
            yield Issue(at=("require",), problem=f"has no value: {reason.message}")
        return
    if isinstance(holds, list | tuple):
        yield Issue(at=("require",), problem="a list is no condition", hint="write all(…) or any(…)")
    elif not holds:
        yield Issue(at=("require",), problem="does not hold for the inputs as they are written")
