"""The simplest number between two neighbouring values of a sample."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_DIGITS = 6  # that a number is told with, where these are enough
_DEPTH = 17  # decimal places below the larger end that are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An interval between the last value on one side of a threshold and the first on the other."""

    inner: float  # the last wrong value: a threshold lies beyond it
    outer: float  # the first right value: a threshold may equal it


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A number in a gap."""

    value: float
    anchored: bool  # zero, or an argument of the function: more than a number that happens to fit


def told(value: float, gap: Gap) -> str:
    """Return a number in a gap with as many digits as it takes to be in it, six at least."""
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
    """Return the number with the fewest digits in (low, high]; of several, the one nearest to the middle."""
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
