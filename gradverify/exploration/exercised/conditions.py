"""Record the comparisons, masks and bounds that the user's code applies to tensors, and the sides that were taken."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradverify.exploration.exercised.facts import Fact, Facts, is_plain
from gradverify.exploration.exercised.lines import LineRecorder
from gradverify.exploration.exercised.user_code import Expression, expression_of, innermost
from gradverify.exploration.exercised.watched import Condition, in_order

_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
_MASKED = {"where": 0, "masked_fill": 1}  # place of the mask among the arguments
_TWO_BOUNDS = {"clamp": (None, None), "hardtanh": (-1.0, 1.0)}  # and their defaults
_LOWER = {"clamp_min", "maximum", "fmax", "relu", "threshold"}
_UPPER = {"clamp_max", "minimum", "fmin"}
_TIES = {
    *("max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "cummax", "cummin", "sort", "argsort", "topk"),
    *("median", "nanmedian", "kthvalue", "mode", "unique", "_unique2"),
}
_WATCHED = {*_COMPARISONS, *_MASKED, *_TWO_BOUNDS, *_LOWER, *_UPPER, *_TIES}


@dataclass(slots=True, kw_only=True)
class _Sides:
    """What was seen of one condition so far; mutable."""

    constants: set[float] = field(default_factory=set)
    was_true: bool = False
    was_false: bool = False
    at_points: bool = True

    def see(self, mask: Tensor) -> None:
        if self.was_true and self.was_false:
            return
        count = int(torch.count_nonzero(mask))
        self.was_true |= count > 0
        self.was_false |= count < mask.numel()


class ConditionRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that records conditions and the names of all operators.

    Only operations called from the user's files are recorded. The values of subclasses, quantised and sparse tensors,
    and of tensors on meta, are not read.
    """

    def __init__(self, lines: LineRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines = lines
        self.facts = Facts()
        self.functions: set[Any] = set()
        self.sides: dict[tuple[Expression, str], _Sides] = {}
        self.expressions: dict[tuple[int, int], Expression] = {}  # by id of the code and place in it
        self.codes: dict[int, CodeType] = {}  # by id, kept alive so that no other gets it
        self.names: dict[Any, tuple[str, bool]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly: torch's own method imports its compiler first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        self.functions.add(func)
        if func not in self.names:
            self.names[func] = _base_name(func)
        name, in_place = self.names[func]
        found = self._expression() if name in _WATCHED or self.lines.misses_thread() else None
        before: list[_Bound] = []
        if found is not None:
            with suppress(Exception):  # nothing that is done here may fail the user's code
                before = _beyond_bounds(name, args, given)  # now, since an operation in place overwrites them
        result = func(*args, **given)
        with suppress(Exception):
            if found is not None and name in _WATCHED:
                self._record(found, name, args, before, result)
            self.facts.follow(name, in_place, args, result)
        return result

    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions recorded so far."""
        return in_order(
            Condition(
                file=place.file,
                line=place.line,
                within=place.within,
                text=place.text,
                operation=operation,
                constants=tuple(sorted(sides.constants)),
                was_true=sides.was_true,
                was_false=sides.was_false,
                at_points=sides.at_points,
            )
            for (place, operation), sides in self.sides.items()
        )

    def operators(self) -> frozenset[str]:
        """Return the names of all operators called so far."""
        return frozenset(_full_name(func) for func in self.functions)

    def _expression(self) -> Expression | None:
        frame = innermost(_caller(), self.lines.is_user_file)
        if frame is None:
            return None
        self.lines.follow(frame)
        key = id(frame.f_code), frame.f_lasti
        if key not in self.expressions:
            self.codes[key[0]] = frame.f_code
            self.expressions[key] = expression_of(frame)
        return self.expressions[key]

    def _record(self, place: Expression, name: str, args: Any, before: list[_Bound], result: Any) -> None:
        with torch.no_grad():
            if name in _COMPARISONS and is_plain(result):
                sides = self._sides(place, name)
                sides.constants.update(_constants(args[:2]))
                about_finiteness = args[0] is args[1] or _is_infinite(args[1])
                sides.at_points &= about_finiteness or _is_equality(name, args) or self._is_edge(args[0], sides)
                sides.see(result)
                self.facts.add(result, Fact.FINITENESS if about_finiteness else Fact.COMPARED)
            elif name in _MASKED:
                mask = args[_MASKED[name]]
                known = self.facts.holds(mask, Fact.COMPARED) or self.facts.holds(mask, Fact.FINITENESS)
                if is_plain(mask) and not known:
                    self._see(place, name, mask)
            elif name in _TIES:
                self._sides(place, name).at_points = False
            for bound in before:
                sides = self._sides(place, bound.operation)
                sides.constants.update(_constants((args[0], bound.value)))
                sides.at_points &= self._is_edge(args[0], sides)
                sides.see(bound.beyond)

    def _is_edge(self, compared: Any, sides: _Sides) -> bool:
        """Return True if a tensor that cannot be negative is compared with zero."""
        return sides.constants == {0.0} and self.facts.holds(compared, Fact.NOT_NEGATIVE)

    def _see(self, place: Expression, operation: str, mask: Tensor) -> None:
        sides = self._sides(place, operation)
        sides.at_points = False
        sides.see(mask)

    def _sides(self, place: Expression, operation: str) -> _Sides:
        return self.sides.setdefault((place, operation), _Sides())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """A bound and the elements beyond it."""

    operation: str  # clamp_min, clamp_max, relu, …
    value: Any  # a number or a tensor
    beyond: Tensor  # mask


def _beyond_bounds(name: str, args: Any, kwargs: dict[str, Any]) -> list[_Bound]:
    """Return the bounds that an operation applies to its first argument; none for integers and unreadable values."""
    if not args or not is_plain(args[0]) or not args[0].is_floating_point():
        return []
    with torch.no_grad():
        return [
            _Bound(operation=operation, value=value, beyond=args[0] < value if lower else args[0] > value)
            for operation, value, lower in _bounds(name, args, kwargs)
            if value is not None and (not isinstance(value, Tensor) or is_plain(value))
        ]


def _bounds(name: str, args: Any, kwargs: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yield the operation, the bound and whether it is a lower one."""
    if name in _TWO_BOUNDS:
        low, high = _TWO_BOUNDS[name]
        yield "clamp_min", args[1] if len(args) > 1 else kwargs.get("min", kwargs.get("min_val", low)), True
        yield "clamp_max", args[2] if len(args) > 2 else kwargs.get("max", kwargs.get("max_val", high)), False
    elif name == "relu":
        yield name, 0.0, True
    elif name in _LOWER or name in _UPPER:
        keywords = [kwargs[key] for key in ("min", "max", "other", "threshold") if key in kwargs]
        yield name, args[1] if len(args) > 1 else keywords[0] if keywords else None, name in _LOWER


def _is_equality(name: str, args: Any) -> bool:
    """Return True if numbers that are not integers are compared for equality."""
    return name in ("eq", "ne") and any(
        isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex()) for each in args[:2]
    )


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _constants(operands: tuple[Any, ...]) -> Iterator[float]:
    """Yield the finite numbers among two operands; of two tensors without dimensions, the second."""
    first, *others = operands
    for value in others or [first]:
        if isinstance(value, Tensor):
            value = value.item() if is_plain(value) and value.dim() == 0 and not value.is_complex() else None
        if isinstance(value, int | float) and math.isfinite(value):
            yield float(value)


def _caller() -> FrameType | None:
    """Return the frame that called the operation: the first that is not in this module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


def _base_name(func: Any) -> tuple[str, bool]:
    """Return an operator's name without namespace, overload and the underscore of an operation in place."""
    name = _full_name(func).rpartition(".")[2]
    in_place = name.endswith("_") and not name.endswith("__")
    return (name[:-1] if in_place else name), in_place


def _full_name(func: Any) -> str:
    return str(getattr(func, "overloadpacket", func))
