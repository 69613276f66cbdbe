"""Boundary errors: the edge of a tensor, or of each tile of it, is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch

from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.relation import confined_to_region
from gradverify.diagnosis.block.structure import Slices, all_slices
from gradverify.diagnosis.naming.region import AxisMasks, Region, chance, regions
from gradverify.diagnosis.naming.variables import VariableKind
from gradverify.evidence import Diagnosis

BOUNDARY_TILE = "boundary-tile"
_MAX_CHANCE = 0.34  # chance of a region above which it is not reported
_MIN_TILE = 4  # smallest tile: smaller periods suggest a stride instead
_EDGE_FRACTION = 3  # an edge covers at most one third of a dimension, or of all entries in flat order
_WIDE = 4  # relevant entries per wrong slice from which a joint error points to the slice
_WIDE_CHANCE = 0.51  # chance up to which such slices at the first edge are reported: one of four


def boundary_tile(seen: BlockEntries) -> Diagnosis | None:
    """Detect errors in the first or last slices of a dimension, or of each tile of it."""
    return confined_to_region(seen, BOUNDARY_TILE, regions_at_edges)


def regions_at_edges(group: AxisMasks) -> Iterator[Region]:
    """Yield the edges of the tensor, or of its tiles, that hold exactly the wrong coordinates, unless by chance."""
    candidates = group.variables
    own = [variable for variable in candidates if variable.kind is VariableKind.OWN]
    one_sided = (region for region in regions(group, own) if region.one_sided)
    if group.accepted(one_sided) is not None:
        return  # a branch explains them better: values sorted along a dimension make both fit
    if any(region.level for region in regions(group, candidates)):
        return  # so does one value that only the wrong coordinates have
    of_slices = (edges(slices) for slices in all_slices(group) for edges in (_periodic, _contiguous, _all_but_edge))
    for region in chain(chain.from_iterable(of_slices), _flat_tail(group)):
        if region.coincidence <= _MAX_CHANCE:
            yield region


def _flat_tail(group: AxisMasks) -> Iterator[Region]:
    """Yield the last coordinates in flat order, which may be an incomplete tile."""
    first, size = int(group.wrong.long().argmax()), len(group.wrong)
    count = size - first
    is_tail = torch.equal(group.wrong[first:], group.relevant[first:])
    if is_tail and len(group.block.shape) > 1 and _EDGE_FRACTION * count <= size:
        text = f"{group.block.name} is in the last {count} of {size} entries in flat order"
        yield Region(text=text, chance=group.chance(1))


def _periodic(slices: Slices) -> Iterator[Region]:
    """Yield the first, or the last, slice of each tile."""
    for tile in range(_MIN_TILE, slices.size // 2 + 1):
        for first, word in ((tile - 1, "last"), (0, "first")):
            expected = frozenset(range(first, slices.size, tile))
            enough = len(slices.wrong) > 1 and 2 * len(slices.wrong) >= len(expected)
            if enough and slices.wrong == expected & slices.relevant:
                probability = chance(2, len(slices.relevant), len(slices.wrong))
                yield Region(text=f"{slices.where}, the {word} of each tile of {tile}", chance=probability)


def _contiguous(slices: Slices) -> Iterator[Region]:
    """Yield the first, or the last, few slices."""
    count, size = len(slices.wrong), slices.size
    by_chance = chance(2, len(slices.relevant), count)
    for start, word in ((size - count, "last"), (0, "first")):
        if _EDGE_FRACTION * count <= size and slices.wrong == frozenset(range(start, start + count)):
            is_edge = slices.width >= _WIDE and (by_chance <= _WIDE_CHANCE or word == "last")
            text = f"{slices.where}, the {word}{f' {count}' if count > 1 else ''} of {size}"
            yield Region(text=text, chance=min(by_chance, _MAX_CHANCE) if is_edge else by_chance)


def _all_but_edge(slices: Slices) -> Iterator[Region]:
    """Yield all slices but the first or the last, as if a loop over a batch handled a single sample.

    A relation has to hold inside (see `relation`), however many slices there are: the first step of a recurrence, or
    of the recursion in its backward, may be right whatever is wrong later.
    """
    by_chance = chance(2, slices.size, slices.size - 1)
    probability = _MAX_CHANCE if slices.width >= _WIDE else max(_MAX_CHANCE, by_chance)
    for edge, word in ((0, "first"), (slices.size - 1, "last")):
        if slices.size > 2 and slices.wrong == frozenset(range(slices.size)) - {edge}:
            yield Region(text=f"{slices.where}, all but the {word} of {slices.size}", chance=probability)
