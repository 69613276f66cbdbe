"""Detached input: the gradient is zero or None although the derivative is not."""

from __future__ import annotations

from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.evidence import Diagnosis, Evidence, WrongBlock

DETACHED = "detached"


def detached(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed block of zeros."""
    del seen
    if bool((evidence.claimed != 0).any()):
        return None
    return as_detached(evidence)


def as_detached(site: WrongBlock) -> Diagnosis:
    """Return the diagnosis of a gradient that is zero or None."""
    of, wrt = site.of.name, site.wrt.name
    if site.backward.problem.order > 1 and site.backward.missing[site.wrt.tensor]:
        text = f"backward has no derivative by {wrt}, although {of} depends on it"
    elif site.backward.missing[site.wrt.tensor]:
        text = f"backward returns no gradient for {wrt}, although {of} depends on it"
    else:
        text = f"analytic = 0 in every entry, although {of} depends on {wrt}"
    return Diagnosis(cause=DETACHED, explanation=text, share=1.0)
