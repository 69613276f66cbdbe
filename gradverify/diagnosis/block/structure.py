"""Structure of a block: elementwise or not, and the coordinates, or whole slices, along one axis that are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gradverify.core.decide.verdict import Code
from gradverify.core.model.coordinates import Block
from gradverify.core.model.magnitudes import finite_size
from gradverify.core.tuning import SEVERAL
from gradverify.diagnosis.block.elsewhere import ignores
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.naming.region import AxisMasks, Region
from gradverify.diagnosis.naming.variables import Axis, variables
from gradverify.diagnosis.naming.wording import listed
from gradverify.diagnosis.tuning import NEGLIGIBLE

_EXCEPTIONS = 10  # one in so many coordinates may contradict
_RUN = 2  # more consecutive slices than this are written as "3 to 5"

# (claimed, numeric), each (m, n), to the mask (m, n) of the entries whose coordinates a region should contain
MarkEntries = Callable[[Tensor, Tensor], Tensor]


def axes_of(entries: BlockEntries) -> tuple[Axis, ...]:
    """Return the axes along which errors are described: the inputs, and the outputs unless these are the same."""
    return (Axis.INPUT,) if entries.is_elementwise else (Axis.INPUT, Axis.OUTPUT)


def axis_masks(entries: BlockEntries, axis: Axis) -> AxisMasks:
    """Return the wrong and the relevant coordinates along an axis."""
    across = axis.across
    visible = ((entries.claimed != 0) | entries.nonzero) & _would_show(entries)
    wrong = entries.wrong.any(across)
    return group_of(entries, axis, wrong, visible.any(across))


def group_of(
    entries: BlockEntries, axis: Axis, wrong: Tensor, relevant: Tensor, marks: MarkEntries | None = None
) -> AxisMasks:
    """Return a group of coordinates, `wrong` (k,), of which a region has to hold those with `marks` elsewhere too."""
    follows = partial(_follows_values, entries, axis, wrong, marks)
    return AxisMasks(evidence=entries.block, axis=axis, wrong=wrong, relevant=relevant, region_test=follows)


def _follows_values(
    entries: BlockEntries, axis: Axis, wrong: Tensor, marks: MarkEntries | None, region: Region
) -> bool | None:
    """Return True if a region contains the coordinates with wrong entries after the values of the input changed places.

    With `marks`, it has to contain those with marked entries instead. Returns False if these are the same coordinates
    `wrong` (k,) as before, unless backward ignores the values; None if neither is clear.
    """
    if region.membership is None or (there := entries.permuted()) is None:
        return None
    marked = there.wrong if marks is None else marks(there.claimed, there.numeric)
    predicted = region.membership({variable.name: variable.values for variable in variables(there, axis)})
    if predicted is None:
        return None
    (inside, sure), across = predicted, axis.across
    size = finite_size(torch.maximum(there.claimed.abs(), there.numeric.abs()))
    nonzero = size > NEGLIGIBLE * size.max()
    code = there.jacobians.code[there.of.coordinates, there.wrt.coordinates]
    known = (code == Code.MATCH) | (code == Code.MISMATCH)
    usable = nonzero.any(across) & known.all(across)
    wrong_there = (marked & nonzero & known).any(across)
    if _agree(inside, wrong_there, usable & sure):
        return True
    stays = _agree(wrong, wrong_there, usable) and not ignores(entries.block, there)
    return False if stays else None


def _agree(expected: Tensor, found: Tensor, usable: Tensor) -> bool:
    """True if two masks (k,) agree at the usable coordinates, up to one exception in ten, and there are enough."""
    exceptions = int(((expected != found) & usable).sum())
    return int(usable.sum()) >= max(SEVERAL, _EXCEPTIONS * exceptions)


def _would_show(entries: BlockEntries) -> Tensor:
    """Mask (m, n) of entries in which the typical relative error of wrong entries would exceed the slack."""
    claimed, numeric = entries.claimed[entries.sampled_wrong], entries.numeric[entries.sampled_wrong]
    typical = float(((claimed - numeric).abs() / torch.maximum(claimed.abs(), numeric.abs())).median())
    size = torch.maximum(entries.claimed.abs(), entries.numeric.abs())
    return entries.wrong | (entries.slack <= typical * size)


def is_run(places: Sequence[int]) -> bool:
    """True if ascending indices are consecutive."""
    return list(places) == list(range(places[0], places[-1] + 1))


def index_along(shape: Sequence[int], dimension: int, device: torch.device) -> Tensor:
    """Return the index along a dimension of every entry of a tensor with this shape, (k,)."""
    return torch.arange(math.prod(shape), device=device) // math.prod(shape[dimension + 1 :]) % shape[dimension]


def any_in_slice(mask: Tensor, shape: Sequence[int], dimension: int) -> Tensor:
    """True for each slice along a dimension that holds an entry of the mask (k, ...) of a tensor; (slices, ...)."""
    before, after = math.prod(shape[:dimension]), math.prod(shape[dimension + 1 :])
    return mask.reshape(before, shape[dimension], after, *mask.shape[1:]).any(2).any(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The slices of a tensor along one dimension, each either wrong in all relevant coordinates or in none."""

    dimension: int
    size: int  # number of slices
    wrong: frozenset[int]  # indices of the wrong slices
    relevant: frozenset[int]  # indices of the slices with relevant coordinates
    width: int  # smallest number of relevant coordinates in a wrong slice
    where: str  # the wrong slices in words


def all_slices(group: AxisMasks) -> Iterator[Slices]:
    """Yield the slices along each dimension, unless some are wrong in only a part of their relevant coordinates."""
    for dimension, size in enumerate(group.block.shape):
        index = index_along(group.block.shape, dimension, group.wrong.device)
        hit, alive = (any_in_slice(mask, group.block.shape, dimension) for mask in (group.wrong, group.relevant))
        if torch.equal(hit[index] & group.relevant, group.wrong):
            places = hit.nonzero().flatten().tolist()
            yield Slices(
                dimension=dimension,
                size=size,
                wrong=frozenset(places),
                relevant=frozenset(alive.nonzero().flatten().tolist()),
                width=int(torch.bincount(index[group.relevant], minlength=size)[hit].min()),
                where=_named(group.block, dimension, places),
            )


def is_every_nth(slices: Slices, step: int) -> bool:
    """True if the wrong slices are all those with relevant coordinates at one offset and the stride `step`."""
    return any(slices.wrong == frozenset(range(at, slices.size, step)) & slices.relevant for at in range(step))


def _named(block: Block, dimension: int, places: list[int]) -> str:
    """Return the slices in words: "x is in rows 7 and 15", or "x is at index 7 of dimension 2" beyond matrices."""
    plural = "s" if len(places) > 1 else ""
    run = len(places) > _RUN and is_run(places)
    numbers = f"{places[0]} to {places[-1]}" if run else listed([str(place) for place in places])
    names = {1: ("element",), 2: ("row", "column")}.get(len(block.shape))
    if names is not None:
        return f"{block.name} is in {names[dimension]}{plural} {numbers}"
    return f"{block.name} is at index {numbers} of dimension {dimension}"
