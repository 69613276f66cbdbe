"""Backward answers with something that does not depend on the cotangent."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.analytic import row
from gradverify.core.evidence import Diagnosis, Evidence
from gradverify.diagnosis.constants import number
from gradverify.diagnosis.described import described
from gradverify.diagnosis.seen import Seen, share_of
from gradverify.diagnosis.variables import Axis
from gradverify.diagnosis.wording import part
from gradverify.errors import EvaluationError

MISSING_COTANGENT = "missing-cotangent"
_SAME = 1e-9  # relative


def missing_cotangent(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """A cotangent of zeros is answered with something else than zeros, and that is the whole error."""
    constant = _answer_to_zero(evidence)
    if constant is None:
        return None
    where = constant != 0
    replaced = torch.where(where, constant, seen.numeric)
    for predicted, form in ((replaced, "analytic = {} whatever the cotangent is"), (seen.numeric + constant, _ADDED)):
        share = share_of(seen, predicted)
        if share is not None:
            region = described(evidence, Axis.INPUT, where, torch.ones_like(where))
            text = form.format(_value(constant[where])) + (f", where {region}" if region else "")
            return Diagnosis(cause=MISSING_COTANGENT, explanation=text + part(share), share=share)
    return None


_ADDED = "analytic = numeric × cotangent + {}, and that second term stays when the cotangent is zero"


def _answer_to_zero(evidence: Evidence) -> Tensor | None:
    size = evidence.whole.claimed.shape[0]
    try:
        answer = row(evidence.backward, torch.zeros(size, dtype=torch.float64))
    except EvaluationError:
        return None
    constant = answer[evidence.wrt.coordinates].to(evidence.claimed.device)
    useful = bool((constant != 0).any()) and bool(torch.isfinite(constant).all())
    return constant if useful else None


def _value(values: Tensor) -> str:
    first = float(values[0])
    same = bool(((values - first).abs() <= _SAME * abs(first)).all())
    return number(first) if same else "a constant"
