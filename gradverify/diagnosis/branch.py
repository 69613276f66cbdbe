"""A branch of the function is differentiated wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.core.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.located import Search, located
from gradverify.diagnosis.region import Region, regions
from gradverify.diagnosis.seen import Seen
from gradverify.diagnosis.structure import Group
from gradverify.diagnosis.variables import scalars, variables

WRONG_BRANCH = "wrong-branch"
LIMIT = 0.25


def wrong_branch(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The wrong entries are those of a region of values, and one relation holds there."""
    return located(evidence, seen, Search(cause=WRONG_BRANCH, regions=by_value, limit=LIMIT))


def by_value(evidence: Site, group: Group) -> Iterator[Region]:
    """Yield the regions of values that the wrong coordinates lie in."""
    return regions(variables(evidence, group.axis), scalars(evidence), group.wrong, group.relevant)
