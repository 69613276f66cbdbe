"""One factor on every entry: a sign, a number of summands, or a constant."""

from __future__ import annotations

import math
from itertools import combinations

from gradverify.core.evidence import Diagnosis, Evidence
from gradverify.diagnosis.constants import Constant, number, recognise
from gradverify.diagnosis.seen import Seen, ratio_of, share_of
from gradverify.diagnosis.wording import everywhere

SIGN_FLIP, MEAN_FOR_SUM, CONSTANT_FACTOR = "sign-flip", "mean-for-sum", "constant-factor"
_SUMMANDS = 3  # with two, a mean for a sum cannot be told from a forgotten ½


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
    if known.text not in (str(count), f"1/{count}") or count not in _summands(evidence, seen):
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
    text = f"analytic = {_signed(value, known)} × numeric{everywhere(share)}{_reading(value, known)}"
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
        math.prod(part) for shape in shapes for count in (1, 2, len(shape)) for part in combinations(shape[:6], count)
    }


def _summands(evidence: Evidence, seen: Seen) -> set[int]:
    """Return the sizes that are no more than what one output is made of, or what one gradient is summed over."""
    most = max(int((~seen.zero).sum(1).max()), int((~seen.zero).sum(0).max()))
    return {size for size in (*_sizes(evidence), most) if size <= most}


def _signed(value: float, known: Constant | None) -> str:
    if known is None:
        return number(value)
    return f"-{known.text}" if value < 0 else known.text


def _reading(value: float, known: Constant | None) -> str:
    if known is None or value < 0:
        return ""
    return f": a factor of {known.inverse} is missing" if known.inverse else f": a factor of {known.text} too many"
