"""Inverted mask: the gradient is nonzero exactly at the inputs whose derivative is zero."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.causes.missing_mask import MISSING_MASK
from gradverify.evidence import Diagnosis, Evidence

_MIN_EACH = 2  # inputs with a zero gradient, and with a zero derivative
_MIN_INPUTS = 6  # inputs in total: a random mask of so many is rarely the inverse


def inverted_mask(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect an input tensor of which each element has a nonzero gradient or a nonzero derivative, but not both."""
    if bool(seen.left_out.any()):
        return None
    claimed, nonzero = (seen.claimed != 0).any(0), (~seen.zero).any(0)
    if (
        not torch.equal(claimed, ~nonzero)
        or len(nonzero) < _MIN_INPUTS
        or min(_count(claimed), _count(nonzero)) < _MIN_EACH
    ):
        return None
    if not bool(seen.wrong.any(0).all()):
        return None
    size = total(evidence.wrt.shape)
    text = f"all elements differ; analytic = 0 in {_count(nonzero)} of {size} elements and numeric = 0 in the others"
    return Diagnosis(cause=MISSING_MASK, explanation=f"{text}: the mask is inverted", share=1.0)


def _count(places: Tensor) -> int:
    return int(places.sum())
