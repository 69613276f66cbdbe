"""Sums for means, or means for sums, that are over another number of entries in each place."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.block.structure import over
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import everywhere

_DIFFERENT = 2  # numbers of entries: else one factor says as much
_SEVERAL = 2  # coordinates with each of them, where one of the two is one
_SUMMED = {
    Axis.INPUT: "outputs that each entry of {wrt} goes into",
    Axis.OUTPUT: "entries of {wrt} that each output is made of",
}


def by_counts(evidence: Evidence, seen: Seen, cause: str) -> Diagnosis | None:
    """Every entry is divided, or multiplied, by how many others its row, or its column, holds."""
    entries = ~seen.zero
    for axis in Axis:
        counts = entries.sum(1 - axis.value)
        live = counts[counts > 0]
        if not _differ(live):
            continue
        number = over(axis, counts.clamp(min=1)).to(seen.numeric.dtype)
        what = _SUMMED[axis].format(wrt=evidence.wrt.name)
        for predicted, scale, words, reading in (
            (seen.numeric / number, 1.0, "numeric / k", "a mean over them instead of their sum"),
            (seen.numeric * number, float(number.max()), "k × numeric", "a sum over them instead of their mean"),
        ):
            share = share_of(seen, predicted, scale)
            if share is not None:
                text = f"analytic = {words}{everywhere(share)}, where k is the number of {what}: {reading}"
                return Diagnosis(cause=cause, explanation=text, share=share)
    return None


def _differ(counts: Tensor) -> bool:
    """Tell whether there are several numbers of entries, so that it is no coincidence where they are factors."""
    found = Counter(counts.tolist())
    beside_one = [count for count in found if count > 1]
    return len(beside_one) >= _DIFFERENT or (len(found) >= _DIFFERENT and min(found.values()) >= _SEVERAL)
