"""The sizes of a case that may change: named ones, and those that occur in several shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.case import (
    Bernoulli,
    Case,
    DataFile,
    Factory,
    Integers,
    Linspace,
    Normal,
    Permutation,
    SizeArgument,
    TensorInput,
    Uniform,
    Values,
)
from gradverify.exploration.change import Base
from gradverify.exploration.inputs import (
    described,
    is_fixed,
    plain_inputs,
    tensor_at,
    tensor_inputs,
    with_input,
    with_plain,
    with_tensor,
)
from gradverify.exploration.legal import why_not
from gradverify.exploration.slices import outputs_or_none
from gradverify.exploration.tools import Tools
from gradverify.formula import evaluate, parse
from gradverify.sampling.seeding import private_generator

_DRAWN = (Normal, Uniform, Integers, Bernoulli, Linspace, Permutation)
_MOST_ENTRIES = 300_000  # of a tensor that changes its shape
Place = tuple[str, int]  # path of a tensor, and an axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One size that may change: of a name of `dims`, or of axes that have the same size."""

    name: str  # as in `dims`, or x.shape[1]
    size: int
    places: tuple[Place, ...] = ()  # () if it has a name: the shapes as written then say where it occurs
    arguments: tuple[str, ...] = ()  # whole numbers that change with it
    beside_equals: bool = False  # True if axes of other tensors that have this size keep it


def dimensions(base: Base) -> tuple[Dimension, ...]:
    """Return the sizes that may change: named ones, equal sizes together, those of tensors of one shape, each alone."""
    case = base.case
    named = tuple(Dimension(name=name, size=size) for name, size in case.dims.items() if not is_fixed(case, name))
    groups: dict[int, list[Place]] = {}
    for path, given in tensor_inputs(case).items():
        if is_fixed(case, path):
            continue
        for axis, size in enumerate(_shape(case, path, base.tools)):
            if given.sizes is None or isinstance(given.sizes[axis], int):
                groups.setdefault(size, []).append((path, axis))
    tied = [_tied(size, places) for size, places in groups.items()]
    with_arguments = [
        replace(found, name=f"{found.name} and {name}", arguments=(name,))
        for found in tied
        for name, value in plain_inputs(case, {}).items()
        if type(value) is int and value == found.size and value > 1 and not is_fixed(case, name)
    ]
    alone = [
        replace(_tied(found.size, places), beside_equals=any(path not in dict(places) for path, _ in found.places))
        for found in tied
        if len(found.places) > 1
        for places in (*_of_one_shape(base, found), *([place] for place in found.places))
    ]
    return (*named, *tied, *with_arguments, *alone)


def _of_one_shape(base: Base, found: Dimension) -> Iterator[list[Place]]:
    """Yield the places of equal sizes that stand on one axis of tensors of one shape, as those of keys and values."""
    groups: dict[object, list[Place]] = {}
    for path, axis in found.places:
        groups.setdefault((_shape(base.case, path, base.tools), axis), []).append((path, axis))
    yield from (places for places in groups.values() if 1 < len(places) < len(found.places))


def named_places(case: Case, name: str) -> tuple[Place, ...]:
    """Return where a size with a name occurs in the shapes as written."""
    return tuple(
        (path, axis)
        for path, given in tensor_inputs(case).items()
        for axis, size in enumerate(given.sizes or ())
        if size == name
    )


def with_size(case: Case, dimension: Dimension, size: int, tools: Tools) -> Case:
    """Return the case with another size; values that are kept stay, the others are drawn alike.

    Offsets that end at the size end at the new one, unless axes that have it too stay as they are.
    """
    if not dimension.beside_equals:
        case = _with_offsets(case, dimension, size, tools)
    if not dimension.places:
        return _with_named(case, {**case.dims, dimension.name: size}, tools)
    for path in dict.fromkeys(path for path, _ in dimension.places):
        shape = enumerate(_shape(case, path, tools))
        new = tuple(size if (path, axis) in dimension.places else was for axis, was in shape)
        case = resized(case, path, new, tools)
    for name in dimension.arguments:
        case = with_plain(case, name, size)
    return case


def _with_offsets(case: Case, dimension: Dimension, size: int, tools: Tools) -> Case:
    """Return the case with integer tensors that ascend from 0 to the size of a dimension ascending to another size."""
    for path, given in tensor_inputs(case).items():
        if is_fixed(case, path) or isinstance(given.origin, _DRAWN) or path in dict(dimension.places):
            continue
        values = tensor_at(case, path, tools)
        if values.is_floating_point() or values.dim() != 1 or values.numel() < 2:
            continue
        if values[0] == 0 and values[-1] == dimension.size and bool((values.diff() >= 0).all()):
            values[-1] = size
            case = with_tensor(case, path, values.clamp(max=size))
    return case


def why_tied(case: Case, dimension: Dimension, tools: Tools) -> str:
    """Return "" if forward takes one slice more and one less in this dimension alone, where others are as large.

    Else the sizes belong together. Sizes that break a rule of the spec are not asked for, nor is a single slice, which
    may be broadcast.
    """
    sizes = [size for size in (dimension.size + 1, dimension.size - 1) if size > 1]
    if all(outputs_with_size(case, dimension, size, tools) is not None for size in sizes):
        return ""
    return f"{dimension.name} belongs to others of its size"


def outputs_with_size(case: Case, dimension: Dimension, size: int, tools: Tools) -> list[Tensor] | None:
    """Return the outputs of forward with another size; None if it raises, or the rules of the spec forbid the size."""
    try:
        other = with_size(case, dimension, size, tools)
    except Exception:  # of factories and constraints, which take some shapes only
        return None
    return outputs_if_legal(other, tools)


def outputs_if_legal(case: Case, tools: Tools) -> list[Tensor] | None:
    """Return the outputs of forward; None if it raises, or the rules of the spec forbid the inputs."""
    try:
        is_legal = not why_not(case, {**tools.defaults, **tools.arguments(case)})
    except Exception:  # of factories too
        return None
    return outputs_or_none(case, tools) if is_legal else None


def resized(case: Case, path: str, shape: tuple[int, ...], tools: Tools) -> Case:
    """Return the case with a tensor of another shape; names of sizes stay with the last dimensions."""
    if math.prod(shape) > _MOST_ENTRIES:
        raise ValueError(f"{path} would have more than {_MOST_ENTRIES:,} entries")
    given = tensor_inputs(case)[path]
    if isinstance(given.origin, DataFile | Factory) and given.constraint is not None:
        raise ValueError(f"{path} comes from elsewhere, with a constraint")
    sizes = None if given.sizes is None else _still_named(given.sizes, shape, case.dims)
    if isinstance(given.origin, _DRAWN):
        return with_input(case, path, replace(given, shape=shape, sizes=sizes))
    changed = described(_refilled(tensor_at(case, path, tools), shape, path), given)
    return with_input(case, path, changed if sizes is None else replace(changed, shape=shape, sizes=sizes))


def _tied(size: int, places: list[Place]) -> Dimension:
    path, axis = places[0]
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return Dimension(name=f"{path}.shape[{axis}]{more}", size=size, places=tuple(places))


def _with_named(case: Case, dims: Mapping[str, int], tools: Tools) -> Case:
    case = replace(case, dims=dict(dims))
    for path, given in tensor_inputs(case).items():
        if given.sizes is not None:
            case = resized(case, path, evaluated(given.sizes, dims), tools)
    for name, given_size in case.inputs.items():
        if isinstance(given_size, SizeArgument) and given_size.sizes is not None:
            case = with_input(case, name, replace(given_size, size=evaluated(given_size.sizes, dims)))
    return case


def _still_named(
    sizes: tuple[int | str, ...], shape: tuple[int, ...], dims: Mapping[str, int]
) -> tuple[int | str, ...] | None:
    """Return a shape with the names in `sizes`, its last dimension first, where they stand for what is there.

    None if no name is left.
    """
    new = len(shape) - len(sizes)
    padded = (*shape[: max(0, new)], *sizes[max(0, -new) :])
    now = evaluated(padded, dims)
    found = tuple(name if size == is_now else size for name, size, is_now in zip(padded, shape, now, strict=True))
    return found if any(isinstance(size, str) for size in found) else None


def evaluated(sizes: tuple[int | str, ...], dims: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape that sizes with names stand for; raises FormulaError and ValueError."""
    found = tuple(size if isinstance(size, int) else _whole(evaluate(parse(size), dims)) for size in sizes)
    if min(found, default=0) < 0:
        raise ValueError(f"a size comes out negative: {list(found)}")
    return found


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"a size is no whole number: {value}")
    return value


def _shape(case: Case, path: str, tools: Tools) -> tuple[int, ...]:
    given = tensor_inputs(case)[path]
    if isinstance(given.origin, Values) or given.shape is None:
        return tuple(tensor_at(case, path, tools).shape)
    return given.shape


def _refilled(tensor: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """Return a tensor of another shape: the values that fit in, the others drawn from the values' own distribution."""
    generator = private_generator(name, 0, str(shape))
    flat = tensor.reshape(-1)
    count = math.prod(shape)
    if not flat.numel():
        new = torch.randn(count, generator=generator, dtype=torch.float64).to(tensor.dtype)
    elif tensor.is_floating_point():
        new = _like(flat, count, generator)
    else:
        new = flat[torch.randint(flat.numel(), (count,), generator=generator)]
    new = new.reshape(shape)
    if new.dim() == tensor.dim():
        kept = tuple(slice(0, min(old, size)) for old, size in zip(tensor.shape, shape, strict=True))
        new[kept] = tensor[kept]
    return new


def _like(values: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` numbers drawn from the distribution function that joins the sorted values by lines."""
    ordered = values.sort().values
    at = torch.rand(count, generator=generator, dtype=torch.float64) * (ordered.numel() - 1)
    low = at.floor().long()
    high = (low + 1).clamp(max=ordered.numel() - 1)
    return torch.lerp(ordered[low], ordered[high], (at - low).to(ordered.dtype))


def shapes(case: Case, tools: Tools) -> Iterator[tuple[str, tuple[int, ...], TensorInput]]:
    """Yield path, shape and description of every tensor."""
    for path, given in tensor_inputs(case).items():
        yield path, _shape(case, path, tools), given
