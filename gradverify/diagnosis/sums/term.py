"""Missing or additional term of low rank in a large block."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.diagnosis.causes.missing_term import MISSING_TERM, low_rank_text
from gradverify.diagnosis.sums.sampled_lines import SampledLines
from gradverify.evidence import Diagnosis

_HIGHEST = 2  # largest rank of an error that so few projections can establish
_RATIO = 3  # smallest ratio of the rank of the numeric block to that of the error
_SMALL = 1e-3  # of the largest singular value: smaller ones count as zero
_RIGHT = 0.2  # largest share of right columns, and rows, among those chosen at random


def missing_term(look: SampledLines) -> Diagnosis | None:
    """Diagnose an error of low rank in most columns and most rows."""
    projections = look.projections
    for sample in (look.columns, look.rows):
        random = sample[: look.random_count]
        if sum(each.right for each in random) > _RIGHT * len(random):
            return None
    rank = _rank(projections.claimed - projections.numeric.value, projections.numeric.bar)
    if not 1 <= rank <= _HIGHEST or _rank(projections.numeric.value, projections.numeric.bar) < _RATIO * rank:
        return None
    return Diagnosis(cause=MISSING_TERM, explanation=low_rank_text(rank), share=1.0)


def _rank(sums: Tensor, bar: Tensor) -> int:
    """Return the rank of a matrix from its random projections, each (K, L); 0 if their error bars are too large."""
    if not bool(torch.isfinite(sums + bar).all()):
        return 0
    scale = sums.square().mean(1, keepdim=True).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    values = torch.linalg.svdvals(sums / scale)
    noise = float(torch.linalg.matrix_norm(bar / scale))
    if float(values[0]) == 0 or noise > _SMALL * float(values[0]):
        return 0
    return int((values > _SMALL * values[0]).sum())
