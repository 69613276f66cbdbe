"""Small errors without a known pattern: an iteration stopped early, or a small term that is missing."""

from __future__ import annotations

import torch

from gradverify.core.tuning import SMALL_PART
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.naming.wording import differ_text, rounded_up
from gradverify.diagnosis.tuning import NO_ACCIDENT
from gradverify.evidence import Diagnosis

APPROXIMATE = "approximate"
_SMALL = 1e-4  # times the largest entry of a row or column: a larger error is not an approximation
_MIN_SHARE = 0.5  # share of the nonzero entries that have to be off by little, including those within the tolerance


def approximate(seen: BlockEntries) -> Diagnosis | None:
    """Detect small errors in most nonzero entries; tried last, because every other cause is more specific.

    Rows and columns may differ in size by orders of magnitude. Every error has to be small in its row or in its column,
    because an entry may be zero by itself, and most errors in both.
    """
    count, nonzero = int(seen.wrong.sum()), int((seen.wrong | seen.nonzero).sum())
    size = torch.maximum(seen.numeric.abs(), seen.claimed.abs())
    largest = float(size.max())
    error = (seen.claimed - seen.numeric).abs()
    in_row, in_column = (error <= _SMALL * size.amax(across, keepdim=True) for across in (1, 0))
    small = int((seen.wrong & in_row & in_column).sum())
    if bool((seen.wrong & ~in_row & ~in_column).any()) or small < NO_ACCIDENT:
        return None
    tolerated = int((seen.nonzero & ~seen.wrong & (error > seen.rounded)).sum())
    if small + tolerated < _MIN_SHARE * nonzero:
        return None
    relative, worst = float((error / size)[seen.wrong].max()), seen.largest_error
    beside_zeros = not relative * largest <= worst / SMALL_PART  # such an rtol would accept far larger errors elsewhere
    accepting = f"`atol: {rounded_up(worst)}`" if beside_zeros else f"`rtol: {rounded_up(relative)}`"
    text = f"{differ_text(count, nonzero, 'entries that are not zero')} and no pattern in them is known; the error is"
    text += f" at most {rounded_up(worst / largest)} of the largest derivative,"
    text += " as where an iteration stops early or a small term is missing"
    return Diagnosis(cause=APPROXIMATE, explanation=f"{text}; if that is meant, {accepting} accepts it", share=1.0)
