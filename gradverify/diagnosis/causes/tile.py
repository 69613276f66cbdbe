"""The edge of a tensor, or of the tiles that it is worked on in, is left out or wrong."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradverify.core.model.coordinates import Block
from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.followed import believed
from gradverify.diagnosis.block.located import Search, located
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.block.slices import Slices, slices_of
from gradverify.diagnosis.block.structure import Group
from gradverify.diagnosis.naming.region import Region, chance, regions
from gradverify.diagnosis.naming.variables import Form, scalars, side, variables

BOUNDARY_TILE = "boundary-tile"
LIMIT = 0.34
_TILE = 4  # the smallest: every second slice is an index that goes up by two, and no edge
_EDGE = 3  # a part of a dimension larger than one in so many is no edge
_WIDE = 4  # entries that each of the wrong slices holds, so that they are wrong together for no other reason
_WIDE_LIMIT = 0.51  # of such slices: one of four at an edge, or the last of three


def boundary_tile(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The wrong entries are the first or last along a dimension, or of every tile of it."""
    return located(evidence, seen, Search(cause=BOUNDARY_TILE, regions=edges, limit=LIMIT))


def edges(evidence: Site, group: Group) -> Iterator[Region]:
    """Yield the edges, of the tensor or of its tiles, that the wrong coordinates are at."""
    found, known = variables(evidence, group.axis), scalars(evidence)
    own = [variable for variable in found if variable.form is Form.OWN]
    branches = (region for region in regions(own, known, group.wrong, group.relevant) if region.one_sided)
    if believed(branches, group.follows) is not None:
        return  # a branch is the likelier reason; values that rise along the dimension say the same twice
    if any(region.level for region in regions(found, known, group.wrong, group.relevant)):
        return  # and where all of them have one value, which no other has
    block = side(evidence, group.axis)
    for dimension in range(len(block.shape)):
        slices = slices_of(block, dimension, group)
        if slices is not None:
            yield from _periodic(slices)
            yield from _contiguous(slices)
            yield from _all_but_edge(slices)
    yield from _flat_tail(block, group)


def _flat_tail(block: Block, group: Group) -> Iterator[Region]:
    """Yield the last coordinates in the order of memory, which may be a tile of their own."""
    first, size = int(group.wrong.long().argmax()), len(group.wrong)
    count = size - first
    if len(block.shape) > 1 and _EDGE * count <= size and torch.equal(group.wrong[first:], group.relevant[first:]):
        likely = chance(1, int(group.relevant.sum()), int(group.wrong.sum()))
        text = f"{block.name} is in the last {count} of {size} entries in flat order"
        yield Region(text=text, chance=likely, anchored=False, one_sided=False)


def _periodic(slices: Slices) -> Iterator[Region]:
    for tile in range(_TILE, slices.size // 2 + 1):
        for first, word in ((tile - 1, "last"), (0, "first")):
            places = frozenset(range(first, slices.size, tile))
            if len(slices.wrong) > 1 and slices.wrong == places & slices.alive and 2 * len(slices.wrong) >= len(places):
                text = f"{slices.where}, the {word} of each tile of {tile}"
                likely = chance(2, len(slices.alive), len(slices.wrong))
                yield Region(text=text, chance=likely, anchored=False, one_sided=False)


def _contiguous(slices: Slices) -> Iterator[Region]:
    count, size = len(slices.wrong), slices.size
    for start, word in ((size - count, "last"), (0, "first")):
        if _EDGE * count <= size and slices.wrong == frozenset(range(start, start + count)):
            text = f"{slices.where}, the {word}{f' {count}' if count > 1 else ''} of {size}"
            likely = chance(2, len(slices.alive), count)
            if slices.width >= _WIDE:
                last_of_three = word == "last" and size > 2 * count
                likely = min(likely, LIMIT) if likely <= _WIDE_LIMIT or last_of_three else likely
            yield Region(text=text, chance=likely, anchored=False, one_sided=False)


def _all_but_edge(slices: Slices) -> Iterator[Region]:
    """Yield all slices but the first, or the last: a batch of which one sample alone is worked on.

    What holds there has to be known: a recurrence has a first step that is right whatever is wrong with the others.
    """
    if slices.size > 2 and len(slices.alive) == slices.size:
        likely = LIMIT if slices.width >= _WIDE else chance(2, slices.size, slices.size - 1)
        for edge, word in ((0, "first"), (slices.size - 1, "last")):
            if slices.wrong == slices.alive - {edge}:
                text = f"{slices.where}, all but the {word} of {slices.size}"
                yield Region(text=text, chance=likely, anchored=False, one_sided=False)
