"""Both branches of a function are wrong, each by a factor of its own, as where they are exchanged."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.followed import believed
from gradverify.diagnosis.block.located import likely
from gradverify.diagnosis.block.relation import named
from gradverify.diagnosis.block.seen import Ratio, Seen, ratio_of, share_of
from gradverify.diagnosis.block.structure import Group, group, over
from gradverify.diagnosis.causes.branch import LIMIT, WRONG_BRANCH, by_value
from gradverify.diagnosis.naming.region import Region
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import part

_SAME = 1e-5  # relative: ratios that are one factor
_SHARP = 1e-3  # of an entry: measured worse, it tells no factor
_SEVERAL = 2  # coordinates on each side


def wrong_branches(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """All entries are wrong, and those on either side of a threshold by one factor."""
    found = group(seen, Axis.INPUT)
    if bool((~seen.zero & ~seen.wrong).any()):
        return None
    here = _one_of_two(seen, found)
    if here is None:
        return None
    for side in (here, found.relevant & ~here):
        sided = _sided(seen, side, found.relevant)
        region = _region(evidence, sided)
        if region is not None:
            return _explained(seen, sided, region)
    return None


def _sided(seen: Seen, side: Tensor, relevant: Tensor) -> Group:
    """Return the inputs on one side, which have the same factor wherever they are; (n,) bool each."""
    factor = ratio_of(seen, over(Axis.INPUT, side).expand_as(seen.wrong))

    def marks(claimed: Tensor, numeric: Tensor) -> Tensor:
        value = math.nan if factor is None else factor.value
        return (claimed - value * numeric).abs() <= _SAME * claimed.abs()

    def follows(region: Region) -> bool | None:
        return seen.follows(Axis.INPUT, side, region, marks)

    return Group(axis=Axis.INPUT, wrong=side, relevant=relevant, follows=follows)


def _one_of_two(seen: Seen, found: Group) -> Tensor | None:
    """Return the inputs whose entries are wrong by one of two factors, (n,) bool; None where there are not just two."""
    live = ~seen.zero & (seen.slack <= _SHARP * seen.numeric.abs())
    first = live.long().argmax(0, keepdim=True)
    ratio = (seen.claimed.gather(0, first) / seen.numeric.gather(0, first)).squeeze(0)
    known = live.any(0) & found.relevant
    if not bool(known.any()) or not torch.equal(known, found.relevant):
        return None
    low, high = float(ratio[known].min()), float(ratio[known].max())
    near = [known & ((ratio - value).abs() <= _SAME * abs(value)) for value in (low, high)]
    several = all(int(side.sum()) >= _SEVERAL for side in near) and not bool((near[0] & near[1]).any())
    return near[1] if several and torch.equal(near[0] | near[1], known) else None


def _region(evidence: Evidence, sided: Group) -> Region | None:
    found = (region for region in by_value(evidence, sided) if region.one_sided and likely(region) <= LIMIT)
    return believed(found, sided.follows)


def _explained(seen: Seen, sided: Group, region: Region) -> Diagnosis | None:
    inside = over(Axis.INPUT, sided.wrong).expand_as(seen.wrong)
    here, there = ratio_of(seen, inside), ratio_of(seen, ~inside)
    if here is None or there is None:
        return None
    factors = [_named(ratio) for ratio in (here, there)]
    predicted = torch.where(inside, factors[0][0], factors[1][0]) * seen.numeric
    share = share_of(seen, predicted, max(abs(factor) for factor, _ in factors))
    if share is None:
        return None
    text = f"all elements differ; analytic = {factors[0][1]} where {region.text} and {factors[1][1]} elsewhere"
    swapped = abs(here.value * there.value - 1.0) <= _SAME
    reading = ": one branch has the slope of the other" if swapped else ""
    return Diagnosis(cause=WRONG_BRANCH, explanation=f"{text}{reading}{part(share)}", share=share)


def _named(ratio: Ratio) -> tuple[float, str]:
    return named(ratio) if ratio.value else (0.0, "0")
