"""Diagnosis of errors confined to a region, from the region and the relation that holds inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.relation import relation, share_inside
from gradverify.diagnosis.block.structure import AxisMasks, axes_of, axis_masks, broadcast_along
from gradverify.diagnosis.block.value_or_position import accepted_region
from gradverify.diagnosis.naming.region import Region, chance
from gradverify.diagnosis.naming.variables import Axis, block_along
from gradverify.diagnosis.naming.wording import diagnosed, differ_text
from gradverify.evidence import Diagnosis, Evidence

_BY_CHANCE = 1e-3  # largest chance of a coincidence for a region in which no relation is known
_TOLERATED = 0.5  # share of right entries that only the tolerance makes right; above it, the error fades out gradually

Regions = Callable[[Evidence, AxisMasks], Iterable[Region]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSearch:
    """A cause, and the regions that it can be confined to."""

    cause: str
    regions: Regions
    limit: float  # chance of a coincidence above which a region is ignored


def confined_to_region(entries: BlockEntries, search: RegionSearch) -> Diagnosis | None:
    """Return the diagnosis of the first region, of inputs or else of outputs, that explains the error.

    Returns None if there is none. Outputs are not tried if the block is elementwise.
    """
    for axis in axes_of(entries):
        coordinates = axis_masks(entries, axis)
        if int(coordinates.wrong.sum()) >= 2 and bool((coordinates.relevant & ~coordinates.wrong).any()):
            diagnosis = _in_region(entries, coordinates, search)
            if diagnosis is not None:
                return diagnosis
    return None


def _in_region(entries: BlockEntries, coordinates: AxisMasks, search: RegionSearch) -> Diagnosis | None:
    """Return the diagnosis of the wrong coordinates along one axis, with the relation inside them if one is known."""
    regions = (
        region for region in search.regions(entries.block, coordinates) if coincidence_chance(region) <= search.limit
    )
    region = accepted_region(regions, coordinates.region_test)
    if region is None:
        return None
    inside = broadcast_along(coordinates.axis, coordinates.wrong)
    holds = relation(entries, inside)
    noun = "elements" if coordinates.axis is Axis.INPUT else "outputs"
    count = differ_text(int(coordinates.wrong.sum()), total(block_along(entries.block, coordinates.axis).shape), noun)
    if holds is not None:
        return diagnosed(search.cause, f"{count}; {holds.text} where {region.text}", holds.share)
    random_choice = chance(1, int(coordinates.relevant.sum()), int(coordinates.wrong.sum()))
    doubtful = max(random_choice, region.chance**2) > _BY_CHANCE or entries.tolerated_share > _TOLERATED
    share = None if doubtful else share_inside(entries, inside)
    return diagnosed(search.cause, f"{count}, exactly where {region.text}", share)


def coincidence_chance(region: Region) -> float:
    """Return the chance that a region is a coincidence; anchored thresholds count half."""
    return region.chance / 2 if region.anchored else region.chance
