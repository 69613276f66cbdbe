"""Missing cotangent: backward returns a value, or adds a term, that does not depend on the cotangent."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.backward.vjps import row, row_cotangent
from gradverify.core.estimate.samples import Estimate
from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.naming.constants import common_value, number_text
from gradverify.diagnosis.naming.region import elements_text, region_text
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import share_text
from gradverify.diagnosis.projections.sums import RandomProjections, holds, sums_over
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnosis, Evidence, WrongBlock

MISSING_COTANGENT = "missing-cotangent"
_SAME = 1e-9  # relative spread of entries that count as one constant
_CLOSE = 1e-3  # times an entry's error: residual that a pattern may leave
_CAP = 0.1  # times an entry's error: upper limit of the slack for measurement and rounding


def missing_cotangent(seen: BlockEntries) -> Diagnosis | None:
    """Detect a nonzero vjp of a zero cotangent that explains the error."""
    constant = vjp_of_zero(seen.block)
    if constant is None:
        return None
    added = constant / row_cotangent(seen.block.backward)
    replaced = torch.where(constant != 0, added, seen.numeric)
    for predicted, form in ((replaced, REPLACED), (seen.numeric + added, ADDED)):
        share = explained_share(seen, predicted)
        if share is not None:
            return as_missing_cotangent(seen.block, constant, f"{form}{_scale_note(seen.block)}", share)
    error = seen.claimed - seen.numeric
    slack = torch.minimum(seen.slack, _CAP * error.abs()) + _CLOSE * error.abs()
    if bool(((error - added).abs() > slack)[seen.wrong].any()):
        return None
    text = "analytic = numeric + what a cotangent of zeros is answered with, in every wrong entry"
    text = f"{text}: a term does not depend on the cotangent"
    return Diagnosis(cause=MISSING_COTANGENT, explanation=text, share=1.0)


def has_constant_part(seen: BlockEntries) -> bool:
    """True if part of the error of a wrong entry does not depend on the cotangent.

    Such a block is not linear in the cotangent, so no other cause is looked for.
    """
    constant = vjp_of_zero(seen.block)
    if constant is None:
        return False
    error = (seen.claimed - seen.numeric).abs()
    return bool(((constant / row_cotangent(seen.block.backward)).abs() > _CLOSE * error)[seen.wrong].any())


def _scale_note(evidence: Evidence) -> str:
    """Return a note on the scale of the constant; "" if rows are computed with a cotangent of 1."""
    cotangent = row_cotangent(evidence.backward)
    if cotangent == 1.0:
        return ""
    return f" (asked with a cotangent of {cotangent:g}, it counts {1 / cotangent:g} times as much)"


REPLACED = "analytic = {} whatever the cotangent is"
ADDED = "analytic = numeric × cotangent + {}, and that second term stays when the cotangent is zero"


def vjp_of_zero(site: WrongBlock) -> Tensor | None:
    """Return the vjp of a zero cotangent by this input, (n,); None if it is zero, as it should be, or not finite."""
    size = max(block.stop for block in site.outputs)
    try:
        vjp = row(site.backward, torch.zeros(size, dtype=torch.float64))
    except EvaluationError:
        return None
    constant = vjp[site.wrt.coordinates].to(site.device)
    usable = bool((constant != 0).any()) and bool(torch.isfinite(constant).all())
    return constant if usable else None


def as_missing_cotangent(site: WrongBlock, constant: Tensor, form: str, share: float) -> Diagnosis:
    """Return the diagnosis of a constant (n,) that replaces the gradient or is added to it, as `form` says."""
    nonzero = constant != 0
    relevant = torch.ones_like(nonzero)
    region, names = (describe(site, Axis.INPUT, nonzero, relevant) for describe in (region_text, elements_text))
    location = f", where {region}" if region else f", at {names}" if names else ""
    value = common_value(constant[nonzero], _SAME)
    text = form.format("a constant" if value is None else number_text(value)) + location
    return Diagnosis(cause=MISSING_COTANGENT, explanation=text + share_text(share), share=share)


def missing_cotangent_in_sums(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose a constant in the gradient: backward does not return zeros for a cotangent of zeros.

    The constant is either added to the right gradient or replaces it in some inputs, and explains the whole error.
    """
    constant = vjp_of_zero(projections.block)
    if constant is None:
        return None
    where, projected = constant != 0, projections.directions[:, projections.block.wrt.coordinates] @ constant
    numeric = projections.numeric
    if holds(projections, Estimate(value=numeric.value + projected, bar=numeric.bar)):
        return as_missing_cotangent(projections.block, constant, ADDED, 1.0)
    outside = sums_over(projections, Axis.INPUT, ~where).numeric
    if holds(projections, Estimate(value=outside.value + projected, bar=outside.bar)):
        return as_missing_cotangent(projections.block, constant, REPLACED, 1.0)
    return None


def has_constant_part_in_sums(projections: RandomProjections) -> bool:
    """True if a significant part of the error does not depend on the cotangent."""
    constant = vjp_of_zero(projections.block)
    if constant is None:
        return False
    projected = projections.directions[:, projections.block.wrt.coordinates] @ constant
    return bool((projected.abs() > _CLOSE * projections.error_size).any())
