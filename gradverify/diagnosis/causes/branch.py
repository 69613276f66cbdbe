"""A branch of the function is differentiated wrongly."""

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
LIMIT = 0.25


def wrong_branch(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The wrong entries are those of a region of values, and one relation holds there."""
    return located(evidence, seen, Search(cause=WRONG_BRANCH, regions=by_value, limit=LIMIT))


def by_value(evidence: Site, group: Group) -> Iterator[Region]:
    """Yield the regions of values that the wrong coordinates lie in.

    Where their places say something simpler, only those that move with the values, unless values that rise with the
    places say the same.
    """
    block, found = side(evidence, group.axis), variables(evidence, group.axis)
    by_place = beside_diagonal(block, group) or in_a_row(block, group)
    stays = by_place and not any(is_sorted(variable.values) for variable in found)
    in_step = every_few(block, group)
    for region in regions(found, scalars(evidence), group.wrong, group.relevant):
        if not (stays or (in_step and not region.level)) or group.follows(region):
            yield region
