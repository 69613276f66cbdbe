"""A small error without a pattern: an iteration that stopped at a tolerance, or an approximation of the derivative."""

from __future__ import annotations

import math

import torch

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.naming.wording import differ, rounded_up

APPROXIMATE = "approximate"
_SMALL = 1e-4  # of the largest derivative: a larger error is no approximation's
_SEVERAL = 3  # wrong entries: with fewer there is no telling whether there is a pattern
_MOST = 0.5  # of the entries that are not zero are off, be it by less than the tolerance
_RELATIVE = 1e-2  # an rtol above this would accept too much; atol is named instead


def approximate(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Most entries are off by little; asked last, because any pattern says more."""
    del evidence
    count, live = int(seen.wrong.sum()), int((seen.wrong | ~seen.zero).sum())
    size = max(float(seen.numeric.abs().max()), float(seen.claimed.abs().max()))
    tolerated = seen.tolerated * (live - count)
    if count < _SEVERAL or seen.largest > _SMALL * size or count + tolerated < _MOST * live:
        return None
    text = f"{differ(count, live, 'entries that are not zero')} and no pattern in them is known; the error is at most"
    text += f" {rounded_up(seen.largest / size)} of the largest derivative, as where an iteration stops at a tolerance"
    return Diagnosis(cause=APPROXIMATE, explanation=f"{text}; {_accepted(seen)} accepts it", share=1.0)


def _accepted(seen: Seen) -> str:
    """Return the tolerance that accepts all wrong entries, as a spec says it."""
    claimed, numeric = seen.claimed[seen.wrong].abs(), seen.numeric[seen.wrong].abs()
    error = (seen.claimed - seen.numeric)[seen.wrong].abs()
    relative = float((error / torch.maximum(claimed, numeric)).max())
    if math.isfinite(relative) and relative <= _RELATIVE:
        return f"`rtol: {rounded_up(relative)}`"
    return f"`atol: {rounded_up(seen.largest)}`"
