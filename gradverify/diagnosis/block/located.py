"""Errors confined to a region: found where a region and what holds inside it are both measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.followed import believed
from gradverify.diagnosis.block.relation import confined, relation
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.block.structure import Group, group, is_elementwise, over
from gradverify.diagnosis.naming.region import Region, chance
from gradverify.diagnosis.naming.variables import Axis, side
from gradverify.diagnosis.naming.wording import differ, part

_BY_CHANCE = 1e-3  # where nothing is known to hold inside, the region alone has to be beyond coincidence
_TOLERATED = 0.5  # share of the right entries that only the tolerance makes right: an error that fades, and has no edge

Regions = Callable[[Evidence, Group], Iterable[Region]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What to look for."""

    cause: str
    regions: Regions
    limit: float  # chance above which a region says nothing


def located(evidence: Evidence, seen: Seen, search: Search) -> Diagnosis | None:
    """Return the first region, along inputs or outputs, inside which one relation explains the error."""
    axes = (Axis.INPUT,) if is_elementwise(evidence, seen) else (Axis.INPUT, Axis.OUTPUT)
    for axis in axes:
        found = group(seen, axis)
        if int(found.wrong.sum()) >= 2 and bool((found.relevant & ~found.wrong).any()):
            diagnosis = _in(evidence, seen, found, search)
            if diagnosis is not None:
                return diagnosis
    return None


def _in(evidence: Evidence, seen: Seen, found: Group, search: Search) -> Diagnosis | None:
    regions = (region for region in search.regions(evidence, found) if likely(region) <= search.limit)
    region = believed(regions, found.follows)
    if region is None:
        return None
    inside = over(found.axis, found.wrong)
    holds = relation(evidence, seen, inside)
    noun = "elements" if found.axis is Axis.INPUT else "outputs"
    count = differ(int(found.wrong.sum()), total(side(evidence, found.axis).shape), noun)
    if holds is not None:
        text = f"{count}; {holds.text} where {region.text}{part(holds.share)}"
        return Diagnosis(cause=search.cause, explanation=text, share=holds.share)
    blind = chance(1, int(found.relevant.sum()), int(found.wrong.sum()))
    vague = max(blind, region.chance**2) > _BY_CHANCE or seen.tolerated > _TOLERATED
    share = None if vague else confined(seen, inside)
    if share is None:
        return None
    text = f"{count}, exactly where {region.text}{part(share)}"
    return Diagnosis(cause=search.cause, explanation=text, share=share)


def likely(region: Region) -> float:
    """Return the chance of a region: a threshold that means something is half as likely to be a coincidence."""
    return region.chance / 2 if region.anchored else region.chance
