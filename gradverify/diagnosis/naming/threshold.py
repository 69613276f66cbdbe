"""The simplest threshold between two neighbouring values of a sample."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_DIGITS = 6  # significant digits, at least
_DEPTH = 17  # significant digits of the larger end, at most: enough for any float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The interval between the wrong and the right value that are next to a threshold."""

    inner: float  # the wrong value, excluded
    outer: float  # the right value, included


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A number in a gap."""

    value: float
    anchored: bool  # the number is zero or an argument of the function, not just any number that fits


def threshold_text(value: float, gap: Gap) -> str:
    """Return the text of a number in a gap, with enough digits to be in it, and at least six."""
    low, high = sorted((gap.inner, gap.outer))
    texts = (f"{value:.{digits}g}" for digits in range(_DIGITS, _DEPTH + 1))
    return next((text for text in texts if low <= float(text) <= high and float(text) != gap.inner), f"{value!r}")


def threshold(gap: Gap, known: Iterable[float]) -> Threshold:
    """Return zero if the gap holds it, else one of the `known` numbers, else the simplest."""
    if gap.inner > gap.outer:
        mirrored = threshold(Gap(inner=-gap.inner, outer=-gap.outer), [-value for value in known])
        return Threshold(value=0.0 - mirrored.value, anchored=mirrored.anchored)
    for value in (0.0, *known):
        if gap.inner < value <= gap.outer:
            return Threshold(value=value, anchored=True)
    return Threshold(value=_simplest(gap.inner, gap.outer), anchored=False)


def _simplest(low: float, high: float) -> float:
    """Return the number with the fewest digits in (low, high]; if there are several, the one nearest to the middle."""
    middle = low / 2 + high / 2
    top = math.floor(math.log10(max(abs(low), abs(high)))) + 1
    for exponent in range(top, top - _DEPTH, -1):
        for digit in (10, 5):
            step = digit * 10.0 ** (exponent - 1)
            first, last = math.floor(low / step) + 1, math.floor(high / step)
            if first <= last:
                value = float(f"{min(max(round(middle / step), first), last) * step:.15g}")
                if low < value <= high:
                    return value
    return high
