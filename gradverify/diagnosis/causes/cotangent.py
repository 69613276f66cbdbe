"""Backward answers with something that does not depend on the cotangent."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import asked_with
from gradverify.core.backward.vjps import row
from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.naming.constants import number
from gradverify.diagnosis.naming.described import described, elements
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import part
from gradverify.errors import EvaluationError

MISSING_COTANGENT = "missing-cotangent"
_SAME = 1e-9  # relative
_CLOSE = 1e-3  # of an error: what may be left of it
_CAP = 0.1  # of an error: no more may be put down to the measurement


def missing_cotangent(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """A cotangent of zeros is answered with something else than zeros, and that is the whole error."""
    constant = answer_to_zero(evidence)
    if constant is None:
        return None
    where, added = constant != 0, constant / asked_with(evidence.backward)
    replaced = torch.where(where, added, seen.numeric)
    for predicted, form in ((replaced, REPLACED), (seen.numeric + added, ADDED)):
        share = share_of(seen, predicted)
        if share is not None:
            return as_constant(evidence, constant, f"{form}{_asked(evidence)}", share)
    return _of_a_term(seen, added)


def stays_without(evidence: Evidence, seen: Seen) -> bool:
    """Tell whether wrong entries hold something that does not depend on the cotangent.

    Such entries are no derivative's, and what they have in common says nothing of how it was computed.
    """
    constant = answer_to_zero(evidence)
    if constant is None:
        return False
    error = (seen.claimed - seen.numeric).abs()
    return bool(((constant / asked_with(evidence.backward)).abs() > _CLOSE * error)[seen.wrong].any())


def _of_a_term(seen: Seen, added: Tensor) -> Diagnosis | None:
    """Every wrong entry is off by the constant, and the others hide it: a term alone forgets its cotangent."""
    error, expected = (seen.claimed - seen.numeric)[seen.wrong], added.expand_as(seen.wrong)[seen.wrong]
    slack = torch.minimum(seen.slack[seen.wrong], _CAP * error.abs()) + _CLOSE * error.abs()
    if bool(((error - expected).abs() > slack).any()):
        return None
    text = "analytic = numeric + what a cotangent of zeros is answered with, in every wrong entry"
    text = f"{text}: a term does not depend on the cotangent"
    return Diagnosis(cause=MISSING_COTANGENT, explanation=text, share=1.0)


def _asked(evidence: Evidence) -> str:
    """Return what makes the numbers of a single output look otherwise than what backward returns."""
    cotangent = asked_with(evidence.backward)
    if cotangent == 1.0:
        return ""
    return f" (asked with a cotangent of {cotangent:g}, it counts {1 / cotangent:g} times as much)"


REPLACED = "analytic = {} whatever the cotangent is"
ADDED = "analytic = numeric × cotangent + {}, and that second term stays when the cotangent is zero"


def answer_to_zero(site: Site) -> Tensor | None:
    """Return what backward says to a cotangent of zeros, None where that is zero, as it should be, or no number."""
    size = max(block.stop for block in site.outputs)
    try:
        answer = row(site.backward, torch.zeros(size, dtype=torch.float64))
    except EvaluationError:
        return None
    constant = answer[site.wrt.coordinates].to(site.device)
    useful = bool((constant != 0).any()) and bool(torch.isfinite(constant).all())
    return constant if useful else None


def as_constant(site: Site, constant: Tensor, form: str, share: float) -> Diagnosis:
    """Return the diagnosis of a constant that stands in place of the gradient, or beside it."""
    where = constant != 0
    everything = torch.ones_like(where)
    region, places = (tell(site, Axis.INPUT, where, everything) for tell in (described, elements))
    told = f", where {region}" if region else f", at {places}" if places else ""
    text = form.format(_value(constant[where])) + told
    return Diagnosis(cause=MISSING_COTANGENT, explanation=text + part(share), share=share)


def _value(values: Tensor) -> str:
    first = float(values[0])
    same = bool(((values - first).abs() <= _SAME * abs(first)).all())
    return number(first) if same else "a constant"
