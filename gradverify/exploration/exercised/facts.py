"""Facts about storages, kept while they are alive: masks that a comparison made, and values that are not negative."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

# Results that are never negative, whatever the operands are.
_NOT_NEGATIVE = {
    *("abs", "square", "exp", "exp2", "sqrt", "cosh", "norm", "linalg_vector_norm", "linalg_matrix_norm"),
    *("sigmoid", "softplus", "relu", "_softmax", "var", "std", "rand", "rand_like", "dist", "_euclidean_dist"),
}
# Results that are not negative if no operand is.
_KEEPS_SIGN = {
    *("sum", "mean", "amax", "amin", "max", "min", "cumsum", "prod", "clone", "_to_copy", "reciprocal", "rsqrt"),
    *("add", "mul", "div", "maximum", "clamp_min", "index", "index_select", "gather", "sort", "topk", "select"),
}
# Masks that hold what the mask they are made of holds, or its opposite.
_KEEPS_MASK = {"bitwise_not", "logical_not", "clone", "_to_copy", "expand", "view", "unsqueeze", "select", "slice"}
_FINITENESS = {"isnan", "isinf", "isposinf", "isneginf"}
# Masks made of others.
_COMBINES = {*_KEEPS_MASK, "mul", "bitwise_and", "bitwise_or", "logical_and", "logical_or", "any", "all"}


class Fact(StrEnum):
    """What is known of a storage."""

    COMPARED = "compared"  # the mask is the result of a comparison that was recorded
    NOT_NEGATIVE = "not negative"
    FINITENESS = "finiteness"  # the mask tells which values are infinite or NaN


class Facts:
    """Facts by storage; mutable."""

    def __init__(self) -> None:
        self.known: dict[int, set[Fact]] = {}  # by id of the storage
        self.alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def holds(self, value: Any, fact: Fact) -> bool:
        """Return True if the fact is known of a tensor; of a number, if it is not negative."""
        if isinstance(value, int | float):
            return fact is Fact.NOT_NEGATIVE and value >= 0
        return isinstance(value, Tensor) and fact in self.known.get(id(storage_of(value)), ())

    def add(self, tensor: Any, fact: Fact) -> None:
        """Remember a fact about a tensor, until its storage is freed."""
        storage = storage_of(tensor)
        if storage is None:
            return
        key = id(storage)

        def forget(_: object) -> None:
            self.known.pop(key, None)
            self.alive.pop(key, None)

        self.known.setdefault(key, set()).add(fact)
        self.alive.setdefault(key, weakref.ref(storage, forget))

    def follow(self, name: str, in_place: bool, args: tuple[Any, ...], result: Any) -> None:
        """Add what an operation tells of its result; forget what is known of a tensor that it overwrites."""
        if in_place:
            self.known.pop(id(storage_of(args[0])) if args else 0, None)
            return
        tensors = [result] if isinstance(result, Tensor) else list(result) if isinstance(result, tuple) else []
        keeps_sign = name in _KEEPS_SIGN and self._hold(args, Fact.NOT_NEGATIVE)
        if keeps_sign or name in _NOT_NEGATIVE or _is_square(name, args):
            self._add_all(tensors, Fact.NOT_NEGATIVE)
        if name in _FINITENESS or (name in _COMBINES and any(self.holds(each, Fact.FINITENESS) for each in args)):
            self._add_all(tensors, Fact.FINITENESS)
        if name in _KEEPS_MASK and self._hold(args[:1], Fact.COMPARED):
            self._add_all(tensors, Fact.COMPARED)

    def _hold(self, args: Iterable[Any], fact: Fact) -> bool:
        values = [value for value in args if isinstance(value, Tensor) or type(value) is float]
        return bool(values) and all(self.holds(value, fact) for value in values)

    def _add_all(self, values: Iterable[Any], fact: Fact) -> None:
        for value in values:
            if isinstance(value, Tensor):
                self.add(value, fact)


def storage_of(tensor: Any) -> torch.UntypedStorage | None:
    """Return the storage of a plain tensor, None for tensors without one."""
    return tensor.untyped_storage() if is_plain(tensor) else None


def is_plain(value: Any) -> bool:
    """Return True for a tensor whose values can be read: dense, no subclass, not quantised, not on meta."""
    return (
        type(value) in (Tensor, torch.nn.Parameter)
        and value.layout is torch.strided
        and not value.is_quantized
        and value.device.type != "meta"
    )


def _is_square(name: str, args: tuple[Any, ...]) -> bool:
    if name == "mul":
        return len(args) > 1 and args[0] is args[1]
    return name == "pow" and len(args) > 1 and isinstance(args[1], int | float) and args[1] % 2 == 0
