"""Backward lets a gradient through where the derivative is zero, and none where it is not: its mask is inverted."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.causes.mask import MISSING_MASK

_SEVERAL = 2  # elements that are masked, and as many that should be
_ENOUGH = 6  # of both: a blind choice of so many would seldom be the other one


def inverted_mask(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every input has a gradient or a derivative, and none has both."""
    if bool(seen.left_out.any()):
        return None
    claimed, alive = (seen.claimed != 0).any(0), (~seen.zero).any(0)
    if not torch.equal(claimed, ~alive) or len(alive) < _ENOUGH or min(_count(claimed), _count(alive)) < _SEVERAL:
        return None
    if not bool(seen.wrong.any(0).all()):
        return None
    size = total(evidence.wrt.shape)
    text = f"all elements differ; analytic = 0 in {_count(alive)} of {size} elements and numeric = 0 in the others"
    return Diagnosis(cause=MISSING_MASK, explanation=f"{text}: the mask is inverted", share=1.0)


def _count(places: Tensor) -> int:
    return int(places.sum())
