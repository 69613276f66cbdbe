"""The key `explore`: what inputs may become in a search for a wrong gradient, and what an editor is told about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradverify.case import INIT, ExploreRules, IndexRange, SizeRange
from gradverify.spec.array import size
from gradverify.spec.dims import readable
from gradverify.spec.limits import MAX_BUDGET, MAX_CHOICES
from gradverify.spec.readers import (
    BadValueError,
    Issue,
    Reader,
    bad,
    distinct_list_of,
    expected,
    gather,
    keyed,
    list_of,
    mapping_of_names,
    number,
    pair_of,
    plain_value,
    signed,
    text,
    whole,
    whole_between,
)
from gradverify.spec.wording import found, shown


def _of_each(values: Mapping[str, Any], says: str) -> dict[str, Any]:
    """Return the JSON Schema of a mapping of names to these values."""
    return {"type": "object", "additionalProperties": dict(values), "description": says}


_SIZE_RANGE = {
    "type": "object",
    "properties": {
        "from": {"type": "integer", "minimum": 0},
        "to": {"type": "integer", "minimum": 0},
        "multiple_of": {"type": "integer", "minimum": 1},
    },
    "additionalProperties": False,
}
_INDEX_RANGE = {
    "type": "object",
    "properties": {
        "below": {"type": ["integer", "string"], "minimum": 1, "description": "a number, or an expression of `dims`"},
        "special": {"type": "array", "items": {"type": "integer"}, "description": "values such as -100"},
    },
    "additionalProperties": False,
}
_RANGE = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}

# `explore` in JSON Schema; names are checked when it is read.
EXPLORE_SCHEMA = {
    "type": "object",
    "properties": {
        "sizes": _of_each(_SIZE_RANGE, "of names in `dims`"),
        "ranges": _of_each(_RANGE, "[low, high] of inputs, both inclusive"),
        "indices": _of_each(_INDEX_RANGE, "of integer inputs, from 0 to below `below`"),
        "choices": _of_each(
            {"type": "array", "minItems": 1, "maxItems": MAX_CHOICES}, "values that an argument may have"
        ),
        "require": {"type": "string", "description": "a condition over inputs and dims: len(y) == n // 2 + 1"},
        "fixed": {"type": "array", "items": {"type": "string"}, "description": "inputs and dims that stay"},
        "budget": {"type": "integer", "minimum": 1, "maximum": MAX_BUDGET, "description": "legal tries"},
    },
    "additionalProperties": False,
    "description": "what inputs may become in `gradverify explore`",
}


def explore(value: Any) -> ExploreRules:
    """Read the rules of a search; every key may be left out."""
    readers: dict[str, Reader[Any]] = {
        "sizes": _by_name(_size_range),
        "ranges": _by_name(_range),
        "indices": _by_name(_index_range),
        "choices": _by_name(_choices),
        "require": _require,
        "fixed": _fixed,
        "budget": whole_between(1, MAX_BUDGET),
    }
    return ExploreRules(**keyed(value, readers))


def same_value(first: Any, second: Any) -> bool:
    """Return whether two plain values are equal; true is not 1."""
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_value, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def _by_name(read: Reader[Any]) -> Reader[dict[str, Any]]:
    """Return a reader of a mapping of names, as x or init.stride, to what `read` reads."""

    def read_by_name(value: Any) -> dict[str, Any]:
        named = value if isinstance(value, dict) else mapping_of_names(value)
        mapping_of_names({name: entry for name, entry in named.items() if not _is_of_constructor(name)})
        return gather((name, read, entry) for name, entry in named.items())

    return read_by_name


def _is_of_constructor(name: str) -> bool:
    return name.startswith(INIT) and name.removeprefix(INIT).isidentifier()


def _size_range(value: Any) -> SizeRange:
    parts = keyed(value, {"from": size, "to": size, "multiple_of": _at_least_one})
    sizes = SizeRange(
        low=parts.get("from", SizeRange().low), high=parts.get("to"), multiple_of=parts.get("multiple_of", 1)
    )
    if sizes.high is None:
        return sizes
    if sizes.low > sizes.high:
        hint = "" if "from" in parts else "`from` is 1 if left out"
        raise bad(f"`from` must not be larger than `to`, found {sizes.low} and {sizes.high}", hint)
    if sizes.high // sizes.multiple_of * sizes.multiple_of < sizes.low:
        raise bad(f"no multiple of {sizes.multiple_of} lies from {sizes.low} to {sizes.high}")
    return sizes


def _at_least_one(value: Any) -> int:
    if whole(value) < 1:
        raise bad(f"must be at least 1, found {value}")
    return int(value)


def _range(value: Any) -> tuple[float, float]:
    low, high = pair_of(number, "[low, high]")(value)
    if low > high:
        raise bad(f"low must not be larger than high, found [{shown(low)}, {shown(high)}]")
    return low, high


def _index_range(value: Any) -> IndexRange:
    return IndexRange(**keyed(value, {"below": _below, "special": list_of(signed, "whole numbers")}))


def _below(value: Any) -> int | str:
    if isinstance(value, str):
        return readable(value).text
    if isinstance(value, bool) or not isinstance(value, int):
        raise expected("a whole number or an expression of `dims`", value)
    return _at_least_one(value)


def _choices(value: Any) -> tuple[Any, ...]:
    choices = list_of(plain_value, "values")(value)
    if not choices:
        raise bad("expected at least one, found an empty list")
    if len(choices) > MAX_CHOICES:
        raise bad(f"at most {MAX_CHOICES} choices, found {len(choices)}")
    twice = [at for at, choice in enumerate(choices) if any(same_value(choice, other) for other in choices[:at])]
    if twice:
        raise BadValueError(*(Issue(at=(at,), problem=f"{found(choices[at])} is given twice") for at in twice))
    return choices


def _require(value: Any) -> str:
    if not isinstance(value, str):
        raise expected("a condition as 'len(y) == n // 2 + 1'", value)
    return readable(value).text if value.strip() else ""


def _fixed(value: Any) -> tuple[str, ...]:
    return () if value == [] else distinct_list_of(text, "names")(value)
