"""Shapes, and values written out in the spec."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from gradverify.spec.limits import BYTES_PER_ELEMENT, MAX_DIMENSIONS, MAX_TENSOR_BYTES
from gradverify.spec.readers import BadValueError, Issue, bad, list_of, whole
from gradverify.spec.wording import found

_MOST_ISSUES = 20  # one misread column would otherwise fill the screen
_REAL = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_COMPLEX = re.compile(rf"[-+]?{_REAL}(?:[-+](?:{_REAL})?j)?|[-+]?(?:{_REAL})?j", re.ASCII)


def shape(value: Any) -> tuple[int, ...]:
    """Read the sizes of a tensor's dimensions; a tensor that would not fit in memory is refused."""
    sizes = list_of(size, "whole numbers")(value)
    if len(sizes) > MAX_DIMENSIONS:
        raise bad(f"at most {MAX_DIMENSIONS} dimensions, found {len(sizes)}")
    # Empty dimensions count as one: torch multiplies the others before it meets the zero.
    needed = math.prod(max(size, 1) for size in sizes) * BYTES_PER_ELEMENT
    if needed > MAX_TENSOR_BYTES:
        limit = MAX_TENSOR_BYTES // 2**30
        raise bad(f"would need {_in_words(needed)}", f"at most {limit} GiB, at {BYTES_PER_ELEMENT} bytes an entry")
    return sizes


def size(value: Any) -> int:
    """Read the size of one dimension."""
    if whole(value) < 0:
        raise bad(f"must not be negative, found {value}")
    return int(value)


def nested_numbers(value: Any) -> Any:
    """Read numbers, or lists of them nested to a rectangle; complex numbers are written as text, "1+2j"."""
    for find_issues in (_entry_issues(value), _ragged_issues(value, shape_of(value))):
        issues = tuple(islice(find_issues, _MOST_ISSUES))
        if issues:
            raise BadValueError(*issues)
    return value


def shape_of(values: Any) -> tuple[int, ...]:
    """Return the shape that nested lists have when they are rectangular."""
    sizes: list[int] = []
    while isinstance(values, list):
        sizes.append(len(values))
        values = values[0] if values else None
    return tuple(sizes)


def flat(values: Any) -> list[Any]:
    """Return the entries of nested lists in order."""
    if not isinstance(values, list):
        return [values]
    return [entry for part in values for entry in flat(part)]


def _in_words(size: int) -> str:
    """Return a number of bytes, of a GiB at least, in the unit that makes it short."""
    for power, unit in enumerate(("GiB", "TiB", "PiB", "EiB"), start=3):
        if size < 999.5 * 1024**power:
            return f"{size / 1024**power:.3g} {unit}"
    return "more than 999 EiB"


def _entry_issues(value: Any) -> Iterator[Issue]:
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from (replace(issue, at=(index, *issue.at)) for issue in _entry_issues(entry))
    elif isinstance(value, str) and not _COMPLEX.fullmatch(value):
        hint = "complex numbers are written 1+2j" if "j" in value or "i" in value else ""
        yield Issue(problem=f"expected a number, found {found(value)}", hint=hint)
    elif not isinstance(value, bool | int | float | str):
        yield Issue(problem=f"expected a number, found {found(value)}")


def _ragged_issues(value: Any, sizes: tuple[int, ...]) -> Iterator[Issue]:
    if not isinstance(value, list):
        if sizes:
            yield Issue(problem="expected a list, as its neighbours are")
    elif not sizes:
        yield Issue(problem="expected a number, as its neighbours are")
    elif len(value) != sizes[0]:
        yield Issue(problem=f"expected a list of {sizes[0]}, as its neighbours are, found one of {len(value)}")
    else:
        for index, entry in enumerate(value):
            yield from (replace(issue, at=(index, *issue.at)) for issue in _ragged_issues(entry, sizes[1:]))
