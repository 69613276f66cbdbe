"""A term of the derivative is left out, or put in, all over a large block."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis
from gradverify.diagnosis.causes.term import MISSING_TERM, mixing
from gradverify.diagnosis.sums.look import Look

_HIGHEST = 2  # rank of an error that so few sums can tell
_RATIO = 3  # the Jacobian's own rank has to be so many times the error's
_SMALL = 1e-3  # singular values below this part of the largest are nothing
_RIGHT = 0.2  # of the columns, or rows, that were picked blindly


def missing_term(look: Look) -> Diagnosis | None:
    """The error is of low rank, and reaches over most inputs and outputs."""
    asked = look.asked
    for seen in (look.columns, look.rows):
        blind = seen[: look.anywhere]
        if sum(each.right for each in blind) > _RIGHT * len(blind):
            return None
    rank = _rank(asked.claimed - asked.numeric.value, asked.numeric.bar)
    if not 1 <= rank <= _HIGHEST or _rank(asked.numeric.value, asked.numeric.bar) < _RATIO * rank:
        return None
    return Diagnosis(cause=MISSING_TERM, explanation=mixing(rank), share=1.0)


def _rank(sums: Tensor, bar: Tensor) -> int:
    """Return the rank of a matrix of which sums with random vectors are known; 0 where it cannot be told."""
    if not bool(torch.isfinite(sums + bar).all()):
        return 0
    scale = sums.square().mean(1, keepdim=True).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    values = torch.linalg.svdvals(sums / scale)
    noise = float(torch.linalg.matrix_norm(bar / scale))
    if float(values[0]) == 0 or noise > _SMALL * float(values[0]):
        return 0
    return int((values > _SMALL * values[0]).sum())
