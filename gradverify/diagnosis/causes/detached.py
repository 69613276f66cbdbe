"""Detached input: the gradient is zero or None although the derivative is not."""

from __future__ import annotations

from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis

DETACHED = "detached"


def detached(compared: ComparedBlock) -> Diagnosis | None:
    """Detect a claimed block of zeros."""
    if not compared.claims_nothing:
        return None
    site = compared.block
    of, wrt = site.of.name, site.wrt.name
    if site.backward.problem.order > 1 and site.backward.missing[site.wrt.tensor]:
        text = f"backward has no derivative by {wrt}, although {of} depends on it"
    elif site.backward.missing[site.wrt.tensor]:
        text = f"backward returns no gradient for {wrt}, although {of} depends on it"
    else:
        text = f"analytic = 0 in every entry, although {of} depends on {wrt}"
    return Diagnosis(cause=DETACHED, explanation=text, share=1.0)
