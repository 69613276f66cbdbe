"""What the spec tells about the values of an input before they are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gradverify.case import (
    Bernoulli,
    DataFile,
    DeviceArgument,
    DtypeArgument,
    Factory,
    Input,
    Integers,
    Linspace,
    ListInput,
    Literal,
    ObjectInput,
    Permutation,
    SizeArgument,
    TensorInput,
    TupleArgument,
    Uniform,
    Values,
)
from gradverify.spec.array import flat, shape_of
from gradverify.spec.wording import found

_MOST = 10_000  # entries of a tensor that are looked at for a condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """Stands in for a tensor whose entries are not known yet."""

    shape: tuple[int, ...]

    def tolist(self) -> list[Any]:
        """Refuse to tell the entries, as expressions ask for them."""
        raise NotImplementedError


def known_values(inputs: Mapping[str, Input | None]) -> dict[str, Any]:
    """Return as much of the inputs' values as the spec tells."""
    known: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, Literal | TupleArgument | SizeArgument):
            known[name] = written(value)
        elif isinstance(value, TensorInput) and isinstance(value.origin, Values) and value.shape is None:
            shape = shape_of(value.origin.values)
            known[name] = value.origin.values if math.prod(shape) <= _MOST else Shaped(shape=shape)
        elif isinstance(value, TensorInput) and value.shape is not None:
            known[name] = Shaped(shape=value.shape)
    return known


def written(value: Literal | TupleArgument | SizeArgument) -> Any:
    """Return a plain value as it stands in the spec."""
    if isinstance(value, TupleArgument):
        return list(value.items)
    return list(value.size) if isinstance(value, SizeArgument) else value.value


def is_numeric(value: Input) -> bool:
    """Return whether a value is a tensor, a number or a list of numbers, or None in place of one."""
    if isinstance(value, TensorInput | ListInput):
        return True
    if not isinstance(value, Literal | TupleArgument | SizeArgument):
        return False
    entries = flat(written(value))
    return all(entry is None or (isinstance(entry, int | float) and not isinstance(entry, bool)) for entry in entries)


def is_whole(value: Input) -> bool:
    """Return whether a value may be whole numbers: tensors of files and factories may."""
    if isinstance(value, ListInput):
        return all(map(is_whole, value.items))
    if isinstance(value, Literal | TupleArgument | SizeArgument):
        return is_numeric(value) and not any(isinstance(entry, float) for entry in flat(written(value)))
    if not isinstance(value, TensorInput):
        return False
    if isinstance(value.origin, Values):
        entries = flat(value.origin.values)
        return all(isinstance(entry, int) or (isinstance(entry, float) and entry.is_integer()) for entry in entries)
    return isinstance(value.origin, Integers | Permutation | DataFile | Factory)


def kind_of(value: Input) -> str:
    """Return in words what an input is."""
    if isinstance(value, ListInput):
        return "a list of tensors"
    if isinstance(value, TensorInput):
        drawn = not isinstance(value.origin, Values | DataFile | Factory)
        return f"drawn by `{type(value.origin).__name__.lower()}`" if drawn else "a tensor"
    if isinstance(value, ObjectInput):
        return "an object"
    if isinstance(value, DtypeArgument | DeviceArgument):
        return f"a {'dtype' if isinstance(value, DtypeArgument) else 'device'}"
    return found(written(value))


def extremes(value: Input) -> list[float]:
    """Return numbers between which the values lie; none for a distribution without ends."""
    if isinstance(value, ListInput):
        return [end for item in value.items for end in extremes(item)]
    if isinstance(value, Literal | TupleArgument | SizeArgument):
        return _numbers(written(value))
    if not isinstance(value, TensorInput):
        return []
    origin = value.origin
    if isinstance(origin, Values):
        return _numbers(origin.values)
    ends: Mapping[type, Callable[[Any], list[float]]] = {
        Uniform: lambda it: [it.low, it.high],
        Linspace: lambda it: [it.start, it.end],
        Integers: lambda it: [it.low, it.high - 1],
        Bernoulli: lambda _: [0, 1],
    }
    return ends.get(type(origin), lambda _: [])(origin)


def first_outside(value: Input, below: int | None, special: frozenset[int]) -> int | None:
    """Return a whole number that a value may have and that is neither in [0, below) nor special, None if there is none.

    `below` is None for no limit.
    """
    most = math.inf if below is None else below
    for part in _whole_numbers(value):
        outside: Iterable[int] = (entry for entry in part if entry < 0 or entry >= most)
        if isinstance(part, range):  # which may be long
            over = part.stop if below is None else max(part.start, below)
            outside = chain(range(part.start, min(part.stop, 0)), range(over, part.stop))
        first = next((entry for entry in outside if entry not in special), None)
        if first is not None:
            return first
    return None


def _whole_numbers(value: Input) -> list[range | list[int]]:
    if isinstance(value, ListInput):
        return [part for item in value.items for part in _whole_numbers(item)]
    if isinstance(value, TensorInput) and isinstance(value.origin, Integers):
        return [range(value.origin.low, value.origin.high)]
    return [[int(entry) for entry in extremes(value)]]


def _numbers(plain: Any) -> list[float]:
    """Return the real numbers in a plain value, without NaN."""
    return [entry for entry in flat(plain) if isinstance(entry, int | float) and entry == entry]
