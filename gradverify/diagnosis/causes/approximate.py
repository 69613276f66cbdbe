"""Small errors without a known pattern: an iteration stopped early, or a small term that is missing."""

from __future__ import annotations

import math

import torch

from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.naming.wording import differ_text, rounded_up
from gradverify.evidence import Diagnosis

APPROXIMATE = "approximate"
_SMALL = 1e-4  # times the largest entry of a row or column: a larger error is not an approximation
_MIN_WRONG = 3  # wrong entries: with fewer, a pattern cannot be excluded
_MIN_SHARE = 0.5  # share of the nonzero entries that have to be off by little, including those within the tolerance
_MAX_RTOL = 1e-2  # above it, suggest an atol instead: such an rtol would accept too much


def approximate(seen: BlockEntries) -> Diagnosis | None:
    """Detect small errors in most nonzero entries; tried last, because every other cause is more specific.

    Rows and columns may differ in size by orders of magnitude. Every error has to be small in its row or in its column,
    because an entry may be zero by itself, and most errors in both.
    """
    count, nonzero = int(seen.wrong.sum()), int((seen.wrong | ~seen.zero).sum())
    size = torch.maximum(seen.numeric.abs(), seen.claimed.abs())
    largest = float(size.max())
    error = (seen.claimed - seen.numeric).abs()
    in_row, in_column = (error <= _SMALL * size.amax(across, keepdim=True) for across in (1, 0))
    small = int((seen.wrong & in_row & in_column).sum())
    if bool((seen.wrong & ~in_row & ~in_column).any()) or small < _MIN_WRONG:
        return None
    tolerated = seen.tolerated_share * (nonzero - count)
    if small + tolerated < _MIN_SHARE * nonzero:
        return None
    relative = float((error / size)[seen.wrong].max())
    if math.isfinite(relative) and relative <= _MAX_RTOL:
        accepted = f"`rtol: {rounded_up(relative)}`"
    else:
        accepted = f"`atol: {rounded_up(seen.largest_error)}`"
    text = f"{differ_text(count, nonzero, 'entries that are not zero')} and no pattern in them is known; the error is"
    text += f" at most {rounded_up(seen.largest_error / largest)} of the largest derivative,"
    text += " as where an iteration stops early or a small term is missing"
    return Diagnosis(cause=APPROXIMATE, explanation=f"{text}; {accepted} accepts it", share=1.0)
