"""Wrong coordinates that form whole slices of a tensor along one dimension."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.structure import AxisMasks
from gradverify.diagnosis.naming.region import chance
from gradverify.diagnosis.naming.wording import listed

_STEPS = (2, 3)  # strides of an index: every second, every third slice
_LIMIT = 0.1  # chance above which a stride may be a coincidence
_RUN = 2  # more consecutive slices than this are written as "3 to 5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The slices of a tensor along one dimension, each either wrong in all relevant coordinates or in none."""

    size: int  # number of slices
    wrong: frozenset[int]  # indices of the wrong slices
    relevant: frozenset[int]  # indices of the slices with relevant coordinates
    width: int  # smallest number of relevant coordinates in a wrong slice
    where: str  # the wrong slices in words


def slices_of(block: Block, dimension: int, group: AxisMasks) -> Slices | None:
    """Return the slices along the dimension, None if some are wrong in a part of their relevant coordinates."""
    others = tuple(place for place in range(len(block.shape)) if place != dimension)
    wrong, relevant = group.wrong.reshape(block.shape), group.relevant.reshape(block.shape)
    hit, alive = (entries.any(others) if others else entries for entries in (wrong, relevant))
    along = [-1 if place == dimension else 1 for place in range(len(block.shape))]
    if not torch.equal(hit.reshape(along) & relevant, wrong):
        return None
    widths = (relevant.sum(others) if others else relevant.long())[hit]
    return Slices(
        size=block.shape[dimension],
        width=int(widths.min()),
        wrong=frozenset(hit.nonzero().flatten().tolist()),
        relevant=frozenset(alive.nonzero().flatten().tolist()),
        where=_named(block, dimension, hit.nonzero().flatten().tolist()),
    )


def is_every_nth(slices: Slices, step: int) -> bool:
    """True if the wrong slices are all those with relevant coordinates at one offset and the stride `step`."""
    return any(slices.wrong == frozenset(range(at, slices.size, step)) & slices.relevant for at in range(step))


def is_every_second_or_third(block: Block, group: AxisMasks) -> bool:
    """True if the wrong coordinates are every second or third slice along a dimension, unlikely by chance."""
    if chance(sum(_STEPS), int(group.relevant.sum()), int(group.wrong.sum())) > _LIMIT:
        return False
    along = (slices_of(block, dimension, group) for dimension in range(len(block.shape)))
    found = [slices for slices in along if slices is not None]
    return any(slices.size >= 2 * step and is_every_nth(slices, step) for slices in found for step in _STEPS)


def _named(block: Block, dimension: int, places: list[int]) -> str:
    """Return the slices in words: "x is in rows 7 and 15", or "x is at index 7 of dimension 2" beyond matrices."""
    plural = "s" if len(places) > 1 else ""
    run = len(places) > _RUN and places == list(range(places[0], places[-1] + 1))
    numbers = f"{places[0]} to {places[-1]}" if run else listed([str(place) for place in places])
    names = {1: ("element",), 2: ("row", "column")}.get(len(block.shape))
    if names is not None:
        return f"{block.name} is in {names[dimension]}{plural} {numbers}"
    return f"{block.name} is at index {numbers} of dimension {dimension}"
