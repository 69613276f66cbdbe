"""Claims that are no number because backward multiplied a zero of the cotangent by an infinite derivative.

At the edge of a domain, as of a square root at zero, the derivative of one output is infinite. Backward is asked for
the others with a cotangent that is zero there, and zero times infinity is no number: it spills into all rows that the
input has a part in, and into rows that do not depend on it at all. Where an output is no number itself, so it does.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from gradverify.core.excuses.trial import Trial
from gradverify.core.function.flags import any_set
from gradverify.core.judging.compare import Code, Judged

_UNKNOWN = (Code.UNDETERMINED, Code.OUTSIDE, Code.JUMP)


def excuse_spilt(trial: Trial, judged: Judged) -> Judged:
    """Leave undetermined what is nan by an input that has a derivative elsewhere that is not finite."""
    at, chosen = trial.at, trial.chosen
    claimed, owner = at.claimed[chosen], at.moves.owner[chosen]
    nan = (judged.code == Code.MISMATCH) & claimed.isnan()
    if not any_set(nan):
        return judged
    unknown = torch.isin(judged.code, torch.tensor(_UNKNOWN, dtype=torch.int8, device=owner.device))
    source = (claimed.isinf() & unknown) | (claimed.isnan() & (judged.code == Code.OUTSIDE))
    infinite = torch.zeros_like(at.sampled.point, dtype=torch.bool)
    infinite[owner[source & (owner >= 0)]] = True
    spilt = nan & infinite[owner.clamp(min=0)]
    return replace(judged, code=judged.code.masked_fill(spilt, Code.SPILT))
