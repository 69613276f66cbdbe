"""Diagnosis of errors confined to a region, from the region and the relation that holds inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gradverify.diagnosis.block.entries import BlockEntries, explained
from gradverify.diagnosis.block.relation import relations, share_inside
from gradverify.diagnosis.block.structure import AxisMasks, axes_of, axis_masks
from gradverify.diagnosis.naming.region import Region, accepted_region, chance, count_text
from gradverify.diagnosis.naming.variables import Axis, broadcast_along
from gradverify.diagnosis.naming.wording import diagnosed
from gradverify.evidence import Diagnosis, Evidence

_BY_CHANCE = 1e-3  # largest chance of a coincidence for a region in which no relation is known
_TOLERATED = 0.5  # share of right entries that only the tolerance makes right; above it, the error fades out gradually

Regions = Callable[[Evidence, AxisMasks], Iterable[Region]]


def confined_to_region(entries: BlockEntries, cause: str, regions: Regions) -> Diagnosis | None:
    """Return the diagnosis of the first of the regions, of inputs or else of outputs, that explains the error.

    Returns None if there is none. Outputs are not tried if the block is elementwise.
    """
    found = (confined_along_axis(entries, axis, cause, regions) for axis in axes_of(entries))
    return next(filter(None, found), None)


def confined_along_axis(entries: BlockEntries, axis: Axis, cause: str, regions: Regions) -> Diagnosis | None:
    """Return the diagnosis of the first of the regions of the coordinates along an axis; None if there is none."""
    coordinates = axis_masks(entries, axis)
    if int(coordinates.wrong.sum()) < 2 or not bool((coordinates.relevant & ~coordinates.wrong).any()):
        return None
    region = accepted_region(regions(entries.block, coordinates), coordinates.region_test)
    return None if region is None else _in_region(entries, coordinates, cause, region)


def _in_region(entries: BlockEntries, coordinates: AxisMasks, cause: str, region: Region) -> Diagnosis | None:
    """Return the diagnosis of the wrong coordinates along one axis, with the relation inside them if one is known."""
    inside = broadcast_along(coordinates.axis, coordinates.wrong)
    count = count_text(coordinates.axis, coordinates.wrong)
    for predicted, scale, text in relations(entries, inside.expand_as(entries.wrong)):
        found = explained(entries, predicted, cause, f"{count}; {text} where {region.text}", scale)
        if found is not None:
            return found
    random_choice = chance(1, int(coordinates.relevant.sum()), int(coordinates.wrong.sum()))
    doubtful = max(random_choice, region.chance**2) > _BY_CHANCE or entries.tolerated_share > _TOLERATED
    share = None if doubtful else share_inside(entries, inside)
    return diagnosed(cause, f"{count}, exactly where {region.text}", share)
