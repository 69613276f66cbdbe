"""The gradient is zero, or missing, where the derivative is not."""

from __future__ import annotations

from gradverify.core.evidence import Diagnosis, Evidence
from gradverify.diagnosis.seen import Seen

DETACHED = "detached"


def detached(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry of the block is zero."""
    del seen
    if bool((evidence.claimed != 0).any()):
        return None
    of, wrt = evidence.of.name, evidence.wrt.name
    if evidence.backward.missing[evidence.wrt.tensor]:
        text = f"backward returns no gradient for {wrt}, although {of} depends on it"
    else:
        text = f"analytic = 0 in every entry, although {of} depends on {wrt}"
    return Diagnosis(cause=DETACHED, explanation=text, share=1.0)
