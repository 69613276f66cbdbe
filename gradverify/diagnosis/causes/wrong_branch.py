"""Wrong derivative of one branch: the errors are confined to a region of values."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.region_search import RegionSearch, confined_to_region
from gradverify.diagnosis.block.slices import is_every_second_or_third
from gradverify.diagnosis.block.structure import AxisMasks, is_consecutive, is_triangle_or_diagonal
from gradverify.diagnosis.naming.region import Region, regions
from gradverify.diagnosis.naming.variables import block_along, is_sorted, scalars, variables
from gradverify.evidence import Diagnosis, Evidence, WrongBlock

WRONG_BRANCH = "wrong-branch"
MAX_CHANCE = 0.25  # chance of a region above which it is not reported


def wrong_branch(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect errors confined to a region of values, inside which one relation holds."""
    return confined_to_region(
        evidence, seen, RegionSearch(cause=WRONG_BRANCH, regions=regions_by_value, limit=MAX_CHANCE)
    )


def regions_by_value(evidence: WrongBlock, group: AxisMasks) -> Iterator[Region]:
    """Yield the regions of values that hold exactly the wrong coordinates.

    The positions of the wrong coordinates may explain them as well. Then only the regions that still hold after the
    values changed places are yielded. Positions are ignored in two cases: a triangle, a diagonal or a run of slices if
    a variable is sorted by position, and every second or third slice if the region is a single value.
    """
    block, candidates = block_along(evidence, group.axis), variables(evidence, group.axis)
    by_place = is_triangle_or_diagonal(block, group) or is_consecutive(block, group)
    position_explains = by_place and not any(is_sorted(variable.values) for variable in candidates)
    in_step = is_every_second_or_third(block, group)
    for region in regions(candidates, scalars(evidence), group.wrong, group.relevant):
        if not (position_explains or (in_step and not region.level)) or group.region_test(region):
            yield region
