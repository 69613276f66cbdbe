"""Wrong derivative of one branch: the errors are confined to a region of values."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.located import Search, located
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.block.slices import every_few
from gradverify.diagnosis.block.structure import Group, beside_diagonal, in_a_row
from gradverify.diagnosis.naming.region import Region, regions
from gradverify.diagnosis.naming.variables import is_sorted, scalars, side, variables

WRONG_BRANCH = "wrong-branch"
LIMIT = 0.25  # chance of a region above which it is not reported


def wrong_branch(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Detect errors confined to a region of values, inside which one relation holds."""
    return located(evidence, seen, Search(cause=WRONG_BRANCH, regions=by_value, limit=LIMIT))


def by_value(evidence: Site, group: Group) -> Iterator[Region]:
    """Yield the regions of values that hold exactly the wrong coordinates.

    The positions of the wrong coordinates may explain them as well. Then only the regions that still hold after the
    values changed places are yielded. Positions are ignored in two cases: a triangle, a diagonal or a run of slices if
    a variable is sorted by position, and every second or third slice if the region is a single value.
    """
    block, candidates = side(evidence, group.axis), variables(evidence, group.axis)
    by_place = beside_diagonal(block, group) or in_a_row(block, group)
    position_explains = by_place and not any(is_sorted(variable.values) for variable in candidates)
    in_step = every_few(block, group)
    for region in regions(candidates, scalars(evidence), group.wrong, group.relevant):
        if not (position_explains or (in_step and not region.level)) or group.follows(region):
            yield region
