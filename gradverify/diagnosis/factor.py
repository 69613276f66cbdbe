"""One factor on every entry: a sign, a number of summands, or a constant."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

from torch import Tensor

from gradverify.core.evidence import Diagnosis, Evidence
from gradverify.diagnosis.constants import Constant, number, recognise
from gradverify.diagnosis.seen import Seen, ratio_of, share_of
from gradverify.diagnosis.wording import everywhere

SIGN_FLIP, MEAN_FOR_SUM, CONSTANT_FACTOR = "sign-flip", "mean-for-sum", "constant-factor"
_SUMMANDS = 3  # with two, a mean for a sum cannot be told from a forgotten ½
_DIMENSIONS = 6  # whose products are tried


def sign_flip(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry has the opposite sign."""
    del evidence
    share = share_of(seen, -seen.numeric)
    if share is None:
        return None
    return Diagnosis(cause=SIGN_FLIP, explanation=f"analytic = -numeric{everywhere(share)}", share=share)


def mean_for_sum(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry is divided, or multiplied, by the number of summands that an output or a gradient has."""
    found = _factor(evidence, seen)
    if found is None:
        return None
    value, known, share = found
    if known is None or value < 0 or max(value, 1 / value) < _SUMMANDS:
        return None
    count = round(max(value, 1 / value))
    if known.text not in (str(count), f"1/{count}") or count not in _summands(evidence, seen, value):
        return None
    if value < 1:
        text = f"analytic = numeric / {count}{everywhere(share)}: a mean over {count} instead of their sum"
    else:
        text = f"analytic = {count} × numeric{everywhere(share)}: a sum over {count} instead of their mean"
    return Diagnosis(cause=MEAN_FOR_SUM, explanation=text, share=share)


def constant_factor(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry is multiplied by one constant; a single entry tells so only if the constant is a known one."""
    found = _factor(evidence, seen)
    if found is None:
        return None
    value, known, share = found
    if known is None and int((~seen.zero).sum()) < 2:
        return None
    text = f"analytic = {_signed(value, known)} × numeric{everywhere(share)}{_reading(evidence, value, known)}"
    return Diagnosis(cause=CONSTANT_FACTOR, explanation=text, share=share)


def _factor(evidence: Evidence, seen: Seen) -> tuple[float, Constant | None, float] | None:
    ratio = ratio_of(seen, seen.wrong)
    if ratio is None or not math.isfinite(ratio.value) or ratio.value in (0.0, 1.0):
        return None
    known = recognise(ratio.value, ratio.accuracy, _sizes(evidence))
    exact = ratio.value if known is None else math.copysign(known.value, ratio.value)
    share = share_of(seen, exact * seen.numeric, abs(exact))
    return None if share is None else (exact, known, share)


def _sizes(evidence: Evidence) -> set[int]:
    """Return the sizes of both tensors' dimensions and the products of several of one tensor's."""
    shapes = (evidence.of.shape, evidence.wrt.shape)
    return {
        math.prod(part) for shape in shapes for count in (1, 2, len(shape)) for part in combinations(shape[:_DIMENSIONS], count)
    }


def _summands(evidence: Evidence, seen: Seen, value: float) -> set[int]:
    """Return how many summands there may be: of an output over any input, and, to divide by, of a gradient."""
    shape, entries = evidence.of.shape, ~seen.zero
    found = summed(evidence.wrt.shape, shape, _number(entries.sum(1)))
    for block in evidence.whole.inputs:
        if block != evidence.wrt:
            found |= summed(block.shape, shape, None)
    return found if value > 1 else found | summed(shape, evidence.wrt.shape, _number(entries.sum(0)))


def summed(many: tuple[int, ...], few: tuple[int, ...], number: int | None) -> set[int]:
    """Return the sizes of what may be summed over on the way from one shape to the other.

    Where the latter is the former without some dimensions, those are summed over, and any of them may have been meant.
    Else it is told by the `number` of entries that each sum is known to have, None where it is not known.
    """
    left, gained = Counter(many) - Counter(few), Counter(few) - Counter(many)
    sizes = list(left.elements())[:_DIMENSIONS]
    products = {math.prod(part) for count in range(1, len(sizes) + 1) for part in combinations(sizes, count)}
    return products & {number} if any(size > 1 for size in gained) else products


def _number(counts: Tensor) -> int | None:
    """Return the number of entries that all rows, or columns, have that have any."""
    live = counts[counts > 0]
    return int(live[0]) if len(live) and bool((live == live[0]).all()) else None


def _signed(value: float, known: Constant | None) -> str:
    if known is None:
        return number(value)
    return f"-{known.text}" if value < 0 else known.text


def _reading(evidence: Evidence, value: float, known: Constant | None) -> str:
    if known is None or value < 0:
        return ""
    text = f": a factor of {known.inverse} is missing" if known.inverse else f": a factor of {known.text} too many"
    count = round(max(value, 1 / value))
    is_size = count >= _SUMMANDS and str(count) in (known.text, known.inverse)
    sized = [block.name for block in (evidence.wrt, evidence.of) if is_size and count in block.shape]
    return f"{text} (the size of a dimension of {sized[0]})" if sized else text
