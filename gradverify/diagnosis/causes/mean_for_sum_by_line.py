"""Sums instead of means, or means instead of sums, over a different number of entries in each row or column."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.block.structure import broadcast_along
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import everywhere
from gradverify.evidence import Diagnosis, Evidence

_MIN_DISTINCT = 2  # distinct counts: with a single one, a constant factor explains the error as well
_MIN_FREQUENCY = 2  # lines per count, if the only two distinct counts are 1 and another
_SUMMED = {
    Axis.INPUT: "outputs that each entry of {wrt} goes into",
    Axis.OUTPUT: "entries of {wrt} that each output is made of",
}


def mean_for_sum_by_line(evidence: Evidence, seen: BlockEntries, cause: str) -> Diagnosis | None:
    """Detect entries divided or multiplied by the number of nonzero entries in their row or column."""
    nonzero = ~seen.zero
    for axis in Axis:
        counts = nonzero.sum(1 - axis.value)
        occurring = counts[counts > 0]
        if not _counts_differ(occurring):
            continue
        divisor = broadcast_along(axis, counts.clamp(min=1)).to(seen.numeric.dtype)
        counted = _SUMMED[axis].format(wrt=evidence.wrt.name)
        for predicted, scale, words, interpretation in (
            (seen.numeric / divisor, 1.0, "numeric / k", "a mean over them instead of their sum"),
            (seen.numeric * divisor, float(divisor.max()), "k × numeric", "a sum over them instead of their mean"),
        ):
            share = explained_share(seen, predicted, scale)
            if share is not None:
                text = f"analytic = {words}{everywhere(share)}, where k is the number of {counted}: {interpretation}"
                return Diagnosis(cause=cause, explanation=text, share=share)
    return None


def _counts_differ(counts: Tensor) -> bool:
    """True if the counts (k,) vary enough that factors equal to them are no coincidence."""
    frequencies = Counter(counts.tolist())
    above_one = [count for count in frequencies if count > 1]
    return len(above_one) >= _MIN_DISTINCT or (
        len(frequencies) >= _MIN_DISTINCT and min(frequencies.values()) >= _MIN_FREQUENCY
    )
