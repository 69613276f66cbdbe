"""The arguments of `explore` that keep tries legal, checked and as rules of a case."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from gradverify.case import ExploreRules, IndexRange, SizeRange
from gradverify.formula import FormulaError, names_of, parse

Sizes = tuple[int | str, ...]


def explore_rules(
    inputs: Collection[str],
    dims: Collection[str],
    *,
    sizes: Mapping[str, Mapping[str, int] | tuple[int, int]] | None,
    ranges: Mapping[str, tuple[float, float]] | None,
    indices: Mapping[str, Mapping[str, Any] | int] | None,
    choices: Mapping[str, Sequence[Any]] | None,
    require: str | None,
    fixed: Sequence[str],
    budget: int,
) -> ExploreRules:
    """Return the rules; `inputs` and `dims` are the names that they may be about.

    Raises ValueError for unknown names and for rules that cannot be read.
    """
    _require_sequence("fixed", fixed, "names")
    _require_known("fixed", fixed, (*inputs, *dims))
    _require_known("sizes", sizes or (), dims)
    for option, rules in (("ranges", ranges), ("indices", indices), ("choices", choices)):
        _require_known(option, rules or (), inputs)
    for name, values in (choices or {}).items():
        _require_sequence(f"choices: `{name}`", values, "values")
    _require_formula(require or "", (*inputs, *dims))
    return ExploreRules(
        sizes={name: _size_range(name, rule) for name, rule in (sizes or {}).items()},
        ranges={name: _range(name, rule) for name, rule in (ranges or {}).items()},
        indices={name: _index_range(name, rule) for name, rule in (indices or {}).items()},
        choices={name: tuple(values) for name, values in (choices or {}).items()},
        require=require or "",
        fixed=tuple(fixed),
        budget=budget,
    )


def named_sizes(given: Mapping[str, Any], dims: Mapping[str, Sequence[int | str]] | None) -> dict[str, Sizes]:
    """Return the sizes in `dims` by input; raises ValueError for inputs that are no tensors of as many dimensions."""
    _require_known("dims", dims or (), given)
    found = {}
    for name, sizes in (dims or {}).items():
        _require_sequence(f"dims: `{name}`", sizes, "names")
        if not isinstance(given[name], Tensor):
            raise ValueError(f"dims: `{name}` is no tensor")
        if given[name].dim() != len(sizes):
            raise ValueError(f"dims: `{name}` has {given[name].dim()} dimensions, found {len(sizes)} names")
        found[name] = tuple(sizes)
    return found


def sizes_of_names(given: Mapping[str, Any], sizes: Mapping[str, Sizes]) -> dict[str, int]:
    """Return the size of every name; raises ValueError if a name has two."""
    found: dict[str, int] = {}
    for name, written in sizes.items():
        for size, entry in zip(given[name].shape, written, strict=True):
            if isinstance(entry, str) and entry.isidentifier() and found.setdefault(entry, size) != size:
                raise ValueError(f"dims: `{entry}` is {found[entry]} and {size}")
    return found


def _require_known(option: str, names: Iterable[str], known: Collection[str]) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        there = f"there are {', '.join(known)}" if known else "there is none"
        raise ValueError(f"{option}: there is no `{unknown}`; {there}")


def _require_sequence(option: str, values: Any, what: str) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{option}: expected a list of {what}, found {values!r}")


def _require_formula(text: str, known: Collection[str]) -> None:
    if not text:
        return
    try:
        names = names_of(parse(text))
    except FormulaError as error:
        raise ValueError(f"require: {error}") from None
    _require_known("require", names, known)


def _range(name: str, rule: tuple[float, float]) -> tuple[float, float]:
    low, high = _pair("ranges", name, rule)
    return float(low), float(high)


def _size_range(name: str, rule: Mapping[str, int] | tuple[int, int]) -> SizeRange:
    if not isinstance(rule, Mapping):
        low, high = _pair("sizes", name, rule)
        return SizeRange(low=low, high=high)
    given = _keys("sizes", name, rule, ("from", "to", "multiple_of"))
    return SizeRange(low=given.get("from", 1), high=given.get("to"), multiple_of=given.get("multiple_of", 1))


def _index_range(name: str, rule: Mapping[str, Any] | int) -> IndexRange:
    if not isinstance(rule, Mapping):
        return IndexRange(below=rule)
    given = _keys("indices", name, rule, ("below", "special"))
    return IndexRange(below=given.get("below"), special=tuple(given.get("special", ())))


def _pair(option: str, name: str, rule: Any) -> tuple[Any, Any]:
    if not isinstance(rule, list | tuple) or len(rule) != 2 or not rule[0] <= rule[1]:
        raise ValueError(f"{option}: `{name}`: expected the least and the largest, found {rule!r}")
    return rule[0], rule[1]


def _keys(option: str, name: str, rule: Mapping[str, Any], known: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the rule; raises ValueError for a key that it cannot have."""
    unknown = next((key for key in rule if key not in known), None)
    if unknown is not None:
        raise ValueError(f"{option}: `{name}` has no {unknown!r}; it may have {', '.join(known)}")
    return rule
