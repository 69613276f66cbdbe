"""Detached input: the gradient is zero or None although the derivative is not."""

from __future__ import annotations

from gradverify.core.model.magnitudes import any_set
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis

DETACHED = "detached"


def detached(compared: ComparedBlock) -> Diagnosis | None:
    """Detect a claimed block of zeros."""
    if any_set(compared.claimed != 0):
        return None
    block = compared.block
    of, wrt = block.of.name, block.wrt.name
    if block.backward.problem.order > 1 and block.backward.missing[block.wrt.tensor]:
        text = f"backward has no derivative by {wrt}, although {of} depends on it"
    elif block.backward.missing[block.wrt.tensor]:
        text = f"backward returns no gradient for {wrt}, although {of} depends on it"
    else:
        text = f"analytic = 0 in every entry, although {of} depends on {wrt}"
    return Diagnosis(cause=DETACHED, explanation=text, share=1.0)
