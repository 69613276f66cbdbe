"""A few entries are wrong, for themselves."""

from __future__ import annotations

from gradverify.core.evidence import Diagnosis, Evidence
from gradverify.diagnosis.seen import Seen
from gradverify.diagnosis.wording import differ, listed, place

SINGLE_ELEMENTS = "single-elements"
_FEW = 3
_RIGHT = 3  # entries other than zero that are right, for each that is wrong


def single_elements(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """At most three entries are wrong, and many more are right."""
    count = int(seen.wrong.sum())
    if count > _FEW or int((~seen.zero & ~seen.wrong).sum()) < _RIGHT * count:
        return None
    wrong = seen.wrong.nonzero().tolist()
    words = [f"{place(evidence.of, row)} by {place(evidence.wrt, column)}" for row, column in wrong]
    text = f"{differ(count, seen.wrong.numel(), 'entries')}: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)
