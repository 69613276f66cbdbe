"""Kinks smaller than the effect of the function's curvature, at the point and at distances of 1e-13 and 1e-9."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tests.zoo.specimen import Specimen, at, specimen
from tests.zoo.wrong import Wrong, with_backward, wrong

Curve = Callable[[Tensor], Tensor]

_K = "slight kink"
_CURVES: tuple[tuple[str, Curve, Curve, float], ...] = (  # name, function, derivative, difference of the two slopes
    ("fourth power", lambda x: 100 * x**4, lambda x: 400 * x**3, 1e-4),
    ("exponential", torch.exp, torch.exp, 1e-6),
    ("wave", lambda x: (5 * x).sin(), lambda x: 5 * (5 * x).cos(), 1e-6),
    ("reciprocal", torch.reciprocal, lambda x: -1 / x**2, 1e-6),
)
_PLACES = (("at the point", 0.0), ("1e-13 beyond", 1e-13), ("1e-9 beyond", 1e-9), ("1e-9 before", -1e-9))


def _bent(curve: Curve, weight: float, threshold: float) -> Curve:
    return lambda x: curve(x) + weight * (x - threshold).relu()


def _off(slope: Curve, by: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda g, x: g * (slope(x) + by)


def _right() -> Iterator[Specimen]:
    for name, curve, _, weight in _CURVES:
        for where, distance in _PLACES:
            function = _bent(curve, weight, 1.0 + distance)
            yield specimen(f"{name} with a slight kink {where}", function, _K, "open at order 2", x=at([1.0]))
    several = at([1.0, 1.45, 1.9])  # a line that moves all of them has few steps
    yield specimen("reciprocals, one with a slight kink", _bent(torch.reciprocal, 1e-6, 1.0), _K, x=several)
    yield specimen(
        "exponential with a slight kink of its slope", lambda x: x.exp() + 1e-6 * (x - 1).relu() ** 2, _K, x=at([1.0])
    )
    beside = _bent(lambda x: (x.exp() + 1000) - 1000, 2e-6, 1.0)  # noise that finer steps do not show
    yield specimen("exponential beside 1000 with a slight kink", beside, _K, "open at order 2", x=at([1.0]))


def _wrong() -> Iterator[Wrong]:
    """Yield claims outside the interval of the slopes by the difference of the slopes, 1e-4."""
    for name, curve, slope, _ in _CURVES:
        for side, by in (("below", -1e-4), ("above", 2e-4)):
            function = with_backward(_bent(curve, 1e-4, 1.0), _off(slope, by))
            yield wrong(f"{name}, {side} the slopes of its slight kink", function, "x", (0,), (0,), _K, x=at([1.0]))


SLIGHT_KINKS: tuple[Specimen, ...] = tuple(_right())
WRONG_SLIGHT_KINKS: tuple[Wrong, ...] = tuple(_wrong())
