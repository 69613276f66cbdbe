"""What was seen of the code under test while it ran."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One place in the code that treats elements differently, and the sides that were taken there.

    For a comparison, `was_true` and `was_false` are about the elements of its result; for `where` and `masked_fill`,
    about their mask; for bounds, True is an element beyond the bound. Both are False where ties decide (`max`, `sort`).
    """

    file: str
    line: int
    within: str  # the function: forward, backward, or a function that they call
    text: str  # the expression as written, on one line; "" if the source is not there
    operation: str  # gt, where, clamp_min, clamp_max, maximum, sort, …
    constants: tuple[float, ...] = ()  # finite numbers that tensors were compared with, ascending
    was_true: bool = False
    was_false: bool = False
    at_points: bool = (
        False  # one side holds single numbers only: equal ones, not finite ones, zeros of what is never negative
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Everything that was seen of the code under test."""

    conditions: tuple[Condition, ...] = ()  # by file, line, text and operation
    ran: frozenset[tuple[str, int]] = frozenset()  # file and line of the user's code; empty if lines were not watched
    operators: frozenset[str] = frozenset()  # operators called, such as "aten.linalg_inv_ex"


def merge(one: Watched, other: Watched) -> Watched:
    """Return what was seen in either of two runs of the same code."""
    found: dict[object, Condition] = {}
    for condition in (*one.conditions, *other.conditions):
        key = _place(condition)
        found[key] = _merged(found[key], condition) if key in found else condition
    return Watched(
        conditions=in_order(found.values()),
        ran=one.ran | other.ran,
        operators=one.operators | other.operators,
    )


def in_order(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return the conditions by file, line, text and operation."""
    return tuple(sorted(conditions, key=_place))


def _place(condition: Condition) -> tuple[str, int, str, str, str]:
    return condition.file, condition.line, condition.text, condition.operation, condition.within


def _merged(one: Condition, other: Condition) -> Condition:
    return replace(
        one,
        constants=tuple(sorted({*one.constants, *other.constants})),
        was_true=one.was_true or other.was_true,
        was_false=one.was_false or other.was_false,
        at_points=one.at_points and other.at_points,
    )
