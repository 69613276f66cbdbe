"""Integrals by Gauss and adaptive quadrature with gradients by Leibniz's rule, and an incomplete gamma function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward, with_factor
from tests.zoo.specimen import uniform


class GaussQuadrature(Function):
    """Integral of exp(-c₀·t)·cos(c₁·t) + c₂·t² from a to b, node after node; twice differentiable."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        ctx.save_for_backward(a, b, c)
        return _gauss(lambda t: _integrand(t, c), a, b, 24)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _by_leibniz(*ctx.saved_tensors, g, 24)


def _limits_alike(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    by_a, by_b, by_c = _by_leibniz(*ctx.saved_tensors, g, 24)
    return -by_a, by_b, by_c


def _with_three_nodes(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _by_leibniz(*ctx.saved_tensors, g, 3)


def _integrand(t: Tensor, c: Tensor) -> Tensor:
    return (-c[0] * t).exp() * (c[1] * t).cos() + c[2] * t * t


def _gauss(function: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, count: int) -> Tensor:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    total = torch.zeros_like(function(a))
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        total = total + weight * function((a + b) / 2 + node * (b - a) / 2)
    return total * (b - a) / 2


def _by_leibniz(a: Tensor, b: Tensor, c: Tensor, g: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    def slopes(t: Tensor) -> Tensor:
        damped = (-c[0] * t).exp()
        return torch.stack([-t * damped * (c[1] * t).cos(), -t * damped * (c[1] * t).sin(), t * t])

    return -g * _integrand(a, c), g * _integrand(b, c), (_gauss(slopes, a, b, count) * g).sum(1)


def _antiderivative(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    def at(t: Tensor) -> Tensor:
        wave = c[1] * (c[1] * t).sin() - c[0] * (c[1] * t).cos()
        return (-c[0] * t).exp() * wave / (c[0] ** 2 + c[1] ** 2) + c[2] * t**3 / 3

    return at(b) - at(a)


class EllipticIntegral(Function):
    """Incomplete elliptic integral of the first kind, by adaptive Simpson quadrature of one entry after the other."""

    @staticmethod
    def forward(ctx: Any, angle: Tensor, m: Tensor) -> Tensor:
        ctx.save_for_backward(angle, m)
        return _integrals(lambda t, m: (1 - m * math.sin(t) ** 2) ** -0.5, angle, m, 1e-13)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        return _elliptic_gradient(ctx, g, 1e-13)


@once_differentiable
def _coarse_quadrature(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    return _elliptic_gradient(ctx, g, 1e-4)


def _elliptic_gradient(ctx: Any, g: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    angle, m = ctx.saved_tensors

    def slope(t: float, m: float) -> float:
        square = math.sin(t) ** 2
        return 0.5 * square * (1 - m * square) ** -1.5

    return g * (1 - m * angle.sin() ** 2) ** -0.5, g * _integrals(slope, angle, m, tolerance)


def _integrals(function: Callable[[float, float], float], angle: Tensor, m: Tensor, tolerance: float) -> Tensor:
    found = []
    for end, parameter in zip(angle.tolist(), m.tolist(), strict=True):
        values = [function(end * part, parameter) for part in (0.0, 0.5, 1.0)]
        found.append(_simpson(lambda t, m=parameter: function(t, m), 0.0, end, values, tolerance))
    return torch.tensor(found, dtype=angle.dtype)


def _simpson(function: Callable[[float], float], low: float, high: float, values: list[float], most: float) -> float:
    middle, sixth = (low + high) / 2, (high - low) / 6
    left, right = function((low + middle) / 2), function((middle + high) / 2)
    whole = sixth * (values[0] + 4 * values[1] + values[2])
    halves = sixth / 2 * (values[0] + 4 * left + 2 * values[1] + 4 * right + values[2])
    if abs(halves - whole) <= 15 * most:
        return halves + (halves - whole) / 15
    first = _simpson(function, low, middle, [values[0], left, values[1]], most / 2)
    return first + _simpson(function, middle, high, [values[1], right, values[2]], most / 2)


def _elliptic(angle: Tensor, m: Tensor) -> Tensor:
    return _gauss(lambda t: (1 - m * t.sin() ** 2) ** -0.5, torch.zeros_like(angle), angle, 40)


class IncompleteGamma(Function):
    """Regularised lower incomplete gamma function by its series, one entry after the other."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(a, x)
        return _gamma_series(a, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, x = ctx.saved_tensors
        slopes = [_series_slope(*entry) for entry in zip(a.tolist(), x.tolist(), strict=True)]
        value, slope = torch.tensor(slopes, dtype=a.dtype).T
        scale = (a * x.log() - x - torch.lgamma(a + 1)).exp()
        return g * scale * (slope + value * (x.log() - torch.digamma(a + 1))), g * _gamma_density(a, x)


@once_differentiable
def _without_log_gamma(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    a, x = ctx.saved_tensors
    return g * _gamma_series(a, x) * x.log(), g * _gamma_density(a, x)


@once_differentiable
def _by_differences(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    a, x = ctx.saved_tensors
    return g * (_gamma_series(a + 4e-3, x) - _gamma_series(a - 4e-3, x)) / 8e-3, g * _gamma_density(a, x)


def _gamma_density(a: Tensor, x: Tensor) -> Tensor:
    return ((a - 1) * x.log() - x - torch.lgamma(a)).exp()


def _gamma_series(a: Tensor, x: Tensor) -> Tensor:
    values = [_series_slope(*entry)[0] for entry in zip(a.tolist(), x.tolist(), strict=True)]
    return (a * x.log() - x - torch.lgamma(a + 1)).exp() * torch.tensor(values, dtype=a.dtype)


def _series_slope(a: float, x: float) -> tuple[float, float]:
    """Return the sum of x^k / ((a + 1)···(a + k)) and its derivative by a."""
    term = value = 1.0
    slope = harmonic = 0.0
    for k in range(1, 400):
        term *= x / (a + k)
        harmonic += 1 / (a + k)
        value, slope = value + term, slope - term * harmonic
        if term * (1 + harmonic) <= 1e-18 * value:
            break
    return value, slope


def _incomplete_gamma(a: Tensor, x: Tensor) -> Tensor:
    term = total = torch.ones_like(a)
    for k in range(1, 120):
        term = term * x / (a + k)
        total = total + term
    return (a * x.log() - x - torch.lgamma(a + 1)).exp() * total


QUADRATURE = (
    slow(
        "gauss quadrature",
        GaussQuadrature,
        one_entry=((1,), "c", (1,)),
        throughout=with_backward(GaussQuadrature, _limits_alike),
        approximate=with_backward(GaussQuadrature, _with_three_nodes),
        plain=_antiderivative,
        a=uniform(0, 0.5, 4),
        b=uniform(1, 2, 4),
        c=uniform(0.5, 1.5, 3),
    ),
    slow(
        "elliptic integral",
        EllipticIntegral,
        one_entry=((2,), "m", (2,)),
        throughout=with_factor(EllipticIntegral, 1, 2.0),
        approximate=with_backward(EllipticIntegral, _coarse_quadrature),
        plain=_elliptic,
        angle=uniform(0.4, 1.4, 5),
        m=uniform(0.1, 0.8, 5),
    ),
    slow(
        "incomplete gamma",
        IncompleteGamma,
        one_entry=((4,), "a", (4,)),
        throughout=with_backward(IncompleteGamma, _without_log_gamma),
        approximate=with_backward(IncompleteGamma, _by_differences),
        plain=_incomplete_gamma,
        a=uniform(0.5, 4, 10),
        x=uniform(0.5, 6, 10),
    ),
)
