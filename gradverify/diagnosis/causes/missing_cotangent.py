"""Missing cotangent: backward returns a value, or adds a term, that does not depend on the cotangent."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.backward.vjps import row_cotangent
from gradverify.diagnosis.block.entries import BlockEntries, Pattern
from gradverify.diagnosis.naming.constants import common_value, number_text
from gradverify.diagnosis.naming.region import AxisMasks, elements_text, region_text
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import diagnosed
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnosis, WrongBlock

MISSING_COTANGENT = "missing-cotangent"
_SAME = 1e-9  # relative spread of entries that count as one constant
_REPLACED = "analytic = {} whatever the cotangent is"
_ADDED = "analytic = numeric × cotangent + {}, and that second term stays when the cotangent is zero"


def missing_cotangent(compared: ComparedBlock) -> Diagnosis | None:
    """Detect a nonzero vjp of a zero cotangent that explains the error."""
    constant = vjp_of_zero(compared.block)
    if constant is None:
        return None
    unchanged = (constant == 0).to(constant.dtype)
    for by_column, form in ((unchanged, _REPLACED), (None, _ADDED)):
        share = compared.agrees(Pattern(by_column=by_column, constant=constant))
        if share is not None:
            return _diagnosis(compared.block, constant, form, share)
    if not isinstance(compared, BlockEntries):
        return None
    in_wrong = torch.where(compared.wrong, compared.numeric + compared.in_rows(constant), compared.claimed)
    text = "analytic = numeric + what a cotangent of zeros is answered with, in every wrong entry"
    return compared.explained(in_wrong, MISSING_COTANGENT, f"{text}: a term does not depend on the cotangent")


def vjp_of_zero(block: WrongBlock) -> Tensor | None:
    """Return the vjp of a zero cotangent by this input, (n,); None if it is zero, as it should be, or not finite."""
    try:
        constant = block.backward.vjp_of_zero[block.wrt.coordinates].to(block.device)
    except EvaluationError:
        return None
    usable = bool((constant != 0).any()) and bool(torch.isfinite(constant).all())
    return constant if usable else None


def _diagnosis(block: WrongBlock, constant: Tensor, form: str, share: float) -> Diagnosis | None:
    """Return the diagnosis of a constant (n,) that replaces the gradient or is added to it, as `form` says."""
    nonzero = constant != 0
    group = AxisMasks(evidence=block, axis=Axis.INPUT, wrong=nonzero, relevant=torch.ones_like(nonzero))
    region, names = region_text(group), elements_text(group)
    location = f", where {region}" if region else f", at {names}" if names else ""
    value = common_value(constant[nonzero], _SAME)
    text = form.format("a constant" if value is None else number_text(value))
    cotangent = row_cotangent(block.backward)
    if cotangent != 1.0:
        text += f" (asked with a cotangent of {cotangent:g}, it counts {1 / cotangent:g} times as much)"
    return diagnosed(MISSING_COTANGENT, f"{text}{location}", share)
