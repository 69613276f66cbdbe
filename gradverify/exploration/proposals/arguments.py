"""Arguments that are no tensors: bool flipped, numbers near and small, None, texts of the same family, tuples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import chain, islice, permutations, zip_longest
from types import NoneType
from typing import Any

import torch

from gradverify.case import INIT, Case, DtypeArgument, Literal, TensorInput, Uniform, Values
from gradverify.checks.contract import check as contract
from gradverify.core.model.problem import Problem
from gradverify.exploration.change import Base, Change, tensors
from gradverify.exploration.dims import shapes
from gradverify.exploration.inputs import (
    is_fixed,
    plain_inputs,
    shown,
    tensor_at,
    tensor_inputs,
    with_input,
    with_plain,
    with_tensor,
)
from gradverify.exploration.legal import finite_range
from gradverify.exploration.proposals.values import LARGEST_FACTOR
from gradverify.exploration.slices import all_equal, outputs, outputs_or_none
from gradverify.exploration.tools import Tools

KIND = "arguments"
FAMILIES = (
    ("mean", "sum", "none", "batchmean", "max", "min", "prod"),
    ("zeros", "constant", "reflect", "replicate", "circular", "border", "reflection", "same", "valid"),
    ("nearest", "linear", "bilinear", "bicubic", "trilinear", "area"),
    ("none", "tanh", "sigmoid", "exact"),
    ("relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "identity", "linear", "none"),
    ("backward", "forward", "ortho"),
    ("left", "right"),
    ("lower", "upper"),
)
_NO_MODE = "no_such_mode"
_NEUTRAL = ("none", "identity")  # what is left where no mode is known
_MODES = (bool, str, NoneType, Enum, DtypeArgument)  # values of which each may have code of its own
_DTYPES = (torch.float64, torch.float32, torch.bfloat16)
_AXES = (0, 1, 2, -1)  # that a tuple of axes may have too
_MOST_ORDERS = 6  # of the entries of a tuple
_MOST = 14  # values tried for one argument
_MOST_TUPLES = 28  # the same of a tuple or list
_MOST_FOR_NONE = 44  # forward refuses most of them
_MOST_ASKED = 3  # whole numbers of one argument at which the contract is asked
_LARGEST_MASK = 10_000  # entries: each is written out
_MOST_SIZES = 3  # sizes of tensors near which whole numbers are tried too


def proposals(base: Base) -> Iterator[Change]:
    """Yield the changes of every argument, the first of each before the second of any."""
    rules = base.case.explore
    ways = []
    for name, value in plain_inputs(base.case, base.tools.defaults).items():
        if is_fixed(base.case, name):
            continue
        others = chain(_in_range(name, value, base), _others(name, value, base))
        values = iter(rules.choices[name]) if name in rules.choices else others
        if name.startswith(INIT):  # which YAML has no word for a tensor, a dtype or a tuple in
            values = (other for other in values if not isinstance(other, TensorInput | torch.dtype | tuple))
        value = _described(value)
        most = _MOST_FOR_NONE if value is None else _MOST_TUPLES if isinstance(value, list | tuple) else _MOST
        found = _distinct(map(_described, values), value)[:most]
        if type(value) is int and name not in rules.choices:
            found = _distinct((*found, *_near_sizes(base)), value)
        ways.append([_change(base, name, value, other, number) for number, other in enumerate(found)])
    ways += [[_to_none(base, path)] for path in _optional_tensors(base)]
    for number in range(max(map(len, ways), default=0)):
        yield from (way[number] for way in ways if number < len(way))


def _change(base: Base, name: str, value: Any, other: Any, number: int) -> Change:
    """Return the change of an argument to its other value of this number, from 0."""
    holders = _holders(base, value) if type(value) is type(other) is int and value < 0 else ()
    phrase = f"{name}: {shown(other)} (was {shown(value)}){''.join(f', in {path} too' for path in holders)}"
    other_code = _has_mode(value) or _has_mode(other) or (type(other) is int and number < _MOST_ASKED)
    is_guess = isinstance(other, str) and other not in base.seen.texts and name not in base.case.explore.choices
    return Change(
        kind=KIND,
        phrase=phrase,
        apply=partial(_with_value, base, name, value, other, holders),
        names=(name, *holders),
        factor=other if type(other) is int and other > 1 else None,
        rules=(partial(_why_no_mode, name, value, other),) if is_guess else (),
        asks=(contract.NAME,) if other_code else (),
        to_default=name in base.tools.defaults and repr(other) == repr(_described(base.tools.defaults[name])),
        far=isinstance(other, float) and name not in base.case.explore.ranges and _is_far(other, value, base),
    )


def _holders(base: Base, value: int) -> tuple[str, ...]:
    """Return the integer tensors that hold a number, as labels hold that of those left out."""
    return tuple(
        path
        for path, tensor in tensors(base).items()
        if not tensor.is_floating_point() and not tensor.is_complex() and bool((tensor == value).any())
    )


def _with_value(base: Base, name: str, value: Any, other: Any, holders: Sequence[str], case: Case) -> Case:
    """Return the case with another value of an argument, in place of the one written in `holders` too."""
    case = with_plain(case, name, other)
    for path in holders:
        tensor = tensor_at(case, path, base.tools)
        case = with_tensor(case, path, tensor.masked_fill(tensor == value, other))
    return case


def _is_far(other: float, value: Any, base: Base) -> bool:
    """Return True if a number is infinite and the code names no infinity, or far larger than the one written."""
    if math.isinf(other):
        return not base.seen.names_infinity
    return isinstance(value, float) and abs(other) > LARGEST_FACTOR * abs(value) > 0


def _why_no_mode(name: str, was: str, mode: str, case: Case, problem: Problem, tools: Tools) -> str:
    """Return "" if forward knows the text `mode` of an argument: it raises, or differs, for one that means nothing.

    Where no mode is known, `none` is: then forward has to differ from what it returns for the one written.
    """
    found = outputs(problem)
    for other in (_NO_MODE, was) if mode in _NEUTRAL else (_NO_MODE,):
        theirs = outputs_or_none(with_plain(case, name, other), tools)
        if theirs is None or not all_equal(found, theirs):
            return ""
    return f"forward takes any text for {name}"


def _has_mode(value: Any) -> bool:
    """True if this is a flag, a text or None, or holds one."""
    if isinstance(value, dict):
        return any(map(_has_mode, value.values()))
    return any(isinstance(each, _MODES) for each in (value if isinstance(value, list | tuple) else (value,)))


def _to_none(base: Base, path: str) -> Change:
    return Change(
        kind=KIND,
        phrase=f"{path}: none",
        apply=partial(_with_literal, path, None),
        names=(path,),
        asks=(contract.NAME,),
        to_default=base.tools.defaults.get(path, base) is None,
    )


def _with_literal(name: str, value: Any, case: Case) -> Case:
    return with_input(case, name, Literal(value=value))


def _optional_tensors(base: Base) -> Iterable[str]:
    """Return the tensors that may become None: it is their default, or the code tests for it."""
    defaults, tested = base.tools.defaults, base.seen.tested_for_none
    optional = (path for path in tensor_inputs(base.case) if defaults.get(path, base) is None or path in tested)
    return [path for path in optional if not is_fixed(base.case, path)]


def _others(name: str, value: Any, base: Base) -> Iterator[Any]:
    """Yield the default of an argument, and other values of the kind it has if that is known."""
    default = base.tools.defaults.get(name, value)
    if default is None or any(isinstance(default, kind) for kind, _ in _BY_TYPE):
        yield default
    if value is None and "dtype" in name:
        yield from _dtypes(value, base)
    known = next((others for kind, others in _BY_TYPE if isinstance(value, kind)), None)
    if known is not None:
        yield from known(value, base)


def _in_range(name: str, value: Any, base: Base) -> Iterator[Any]:
    """Yield the ends of the range that an argument has, its middle and its quarters; whole numbers if it is one."""
    ends = finite_range(base.case, name)
    if type(value) not in (int, float) or ends is None:
        return
    low, high = ends
    for share in (1.0, 0.0, 0.5, 0.75, 0.25):
        number = low + share * (high - low)
        yield number if isinstance(value, float) else min(max(round(number), math.ceil(low)), math.floor(high))


def _whole(value: int, base: Base) -> Iterator[Any]:
    yield from (value + 1, value - 1, 1, 0, 2, -1, 3, -2, 2 * value, 4, 5)
    yield from (number for number in base.seen.integers if abs(number) < 200)
    if value > 0:
        yield from ((value, value + 1), (value + 1, value))


def _near_sizes(base: Base) -> Iterator[int]:
    sizes = dict.fromkeys(size for _, shape, _ in shapes(base.case, base.tools) for size in shape)
    yield from (near for size in list(sizes)[:_MOST_SIZES] for near in (size + 1, size, -size))


def _real(value: float, _base: Base) -> Iterator[float]:
    yield from (1.0, 0.0, 0.5, 2.0, value / 2, 2 * value, 3.0, 1.5, 10 * value, value / 10, -value, -1.0)
    yield from (1e3 * value, math.inf)


def _texts(value: str, base: Base) -> Iterator[str]:
    """Yield the texts of the same families that stand in the code, others in the code, and others of the families."""
    related = [other for family in FAMILIES if value in family for other in family]
    yield from (other for other in related if other in base.seen.texts)
    yield from base.seen.texts
    yield from related


def _for_none(_value: None, base: Base) -> Iterator[Any]:
    """Yield numbers, then in turn: tensors of positive numbers, constant and differentiated, masks, and offsets.

    Tensors are as long as a dimension of another input, or have the shape of one, of one without one of its dimensions,
    as the state of a sequence has, or of a product of two. Each is a constant first: whether backward has a gradient
    for it is another question.
    """
    yield from (1, 2.0, 0.5, True, 0)
    known = [shape for _, shape, _ in shapes(base.case, base.tools) if shape]
    found = [(size,) for shape in known for size in (shape[-1], shape[min(1, len(shape) - 1)], shape[0])]
    wide = [shape for shape in known if len(shape) > 1]
    without = [other for shape in wide for other in ((shape[0], *shape[2:]), (*shape[:-2], shape[-1]))]
    products = [(*wide[0][:-1], wide[-1][-1]), (*wide[0][:-2], wide[0][-1], wide[-1][-1])] if len(wide) > 1 else []
    masked = [(wide[0][-2], wide[-1][-2]), *(shape[:-1] for shape in wide)] if wide else []
    sizes = dict.fromkeys(shape[axis] for shape in known for axis in range(min(2, len(shape))))
    numbers = Uniform(low=0.5, high=1.5)
    distinct = tuple(dict.fromkeys((*found, *known, *without, *products)))
    ways = (
        [TensorInput(origin=numbers, shape=shape, requires_grad=False) for shape in distinct],
        [TensorInput(origin=numbers, shape=shape, requires_grad=True) for shape in distinct],
        [_mask(shape) for shape in dict.fromkeys((*masked, *known, *found)) if math.prod(shape) <= _LARGEST_MASK],
        [_integers(0, size // 2, size) for size in sizes],
    )
    yield from (other for others in zip_longest(*ways) for other in others if other is not None)


def _mask(shape: tuple[int, ...]) -> TensorInput:
    """Return the description of a mask that leaves out every third entry."""
    kept = torch.arange(math.prod(shape)).reshape(shape) % 3 > 0
    return TensorInput(origin=Values(values=kept.tolist()), shape=shape, dtype="bool", requires_grad=False)


def _integers(*values: int) -> TensorInput:
    return TensorInput(origin=Values(values=list(values)), shape=(len(values),), dtype="int64", requires_grad=False)


def _sequences(value: list[Any] | tuple[Any, ...], base: Base) -> Iterator[Any]:
    if not value:
        return
    kind = type(value)
    yield kind(reversed(value))
    whole = all(isinstance(entry, int) and not isinstance(entry, bool) for entry in value)
    if whole:
        yield kind(1 for _ in value)
        yield from (kind((*value, other)) for other in _AXES if other not in value)
    for number, entry in enumerate(value):
        for other in _distinct(_others("", entry, base), entry)[:5]:
            yield kind((*value[:number], other, *value[number + 1 :]))
    if whole:
        yield from islice(map(kind, permutations(value)), _MOST_ORDERS)
        if len(value) > 1:  # their sum may have to stay
            yield kind((value[0] + 1, *value[1:-1], value[-1] - 1))
        yield kind(2 for _ in value)
    yield from (kind((*value, value[-1])), kind(value[:-1]))
    yield value[0]


def _mappings(value: Mapping[str, Any], base: Base) -> Iterator[Any]:
    for key, entry in value.items():
        yield from ({**value, key: other} for other in _distinct(_others("", entry, base), entry)[:5])


def _members(value: Enum, _base: Base) -> Iterator[Enum]:
    yield from type(value)


def _dtypes(_value: Any, _base: Base) -> Iterator[torch.dtype]:
    yield from _DTYPES


def _described(value: Any) -> Any:
    """Return the value of an argument as a case has it: a dtype has a description of its own."""
    return DtypeArgument(name=str(value).removeprefix("torch.")) if isinstance(value, torch.dtype) else value


# Functions that yield other values, by the type of the one written; a flag is a whole number too.
_BY_TYPE: tuple[tuple[type | tuple[type, ...], Callable[[Any, Base], Iterator[Any]]], ...] = (
    (Enum, _members),
    ((DtypeArgument, torch.dtype), _dtypes),
    (bool, lambda value, _base: iter((not value,))),
    (int, _whole),
    (float, _real),
    (str, _texts),
    (NoneType, _for_none),
    ((list, tuple), _sequences),
    (dict, _mappings),
)


def _distinct(values: Iterable[Any], value: Any) -> list[Any]:
    """Return the values without repetitions, and without the one written."""
    found: dict[str, Any] = {}
    for other in values:
        found.setdefault(repr(other), other)
    found.pop(repr(value), None)
    return list(found.values())
