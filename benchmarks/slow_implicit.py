"""Equations solved by iteration, with gradients by the implicit function theorem."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward, with_factor
from tests.zoo.specimen import normal, uniform


class FixedPoint(Function):
    """z = tanh(W·z + x), iterated until it rests."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        z = torch.zeros_like(x)
        for _ in range(200):
            z, before = torch.tanh(w @ z + x), z
            if (z - before).abs().max() <= 1e-15:
                break
        ctx.save_for_backward(z, w)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        z, w = ctx.saved_tensors
        return _neumann(z, w.T, g, 200)


@once_differentiable
def _fixed_point_untransposed(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    z, w = ctx.saved_tensors
    return _neumann(z, w, g, 200)


@once_differentiable
def _fixed_point_truncated(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    z, w = ctx.saved_tensors
    return _neumann(z, w.T, g, 6)


def _neumann(z: Tensor, transposed: Tensor, g: Tensor, terms: int) -> tuple[Tensor, Tensor]:
    slope, adjoint = 1 - z * z, g
    for _ in range(terms):
        adjoint, before = g + transposed @ (slope * adjoint), adjoint
        if (adjoint - before).abs().max() <= 1e-15 * g.abs().max():
            break
    return slope * adjoint, torch.outer(slope * adjoint, z)


def _fixed_point(x: Tensor, w: Tensor) -> Tensor:
    z = torch.zeros_like(x)
    for _ in range(80):
        z = torch.tanh(w @ z + x)
    return z


class Kepler(Function):
    """The eccentric anomaly E - e·sin E = M, by bisection of one planet after the other."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, eccentricity: Tensor) -> Tensor:
        solved = [_bisected(m, e) for m, e in zip(mean.tolist(), eccentricity.tolist(), strict=True)]
        anomaly = torch.tensor(solved, dtype=mean.dtype)
        ctx.save_for_backward(anomaly, eccentricity)
        return anomaly

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        anomaly, e = ctx.saved_tensors
        by_mean = g / (1 - e * anomaly.cos())
        return by_mean, by_mean * anomaly.sin()


class UnconvergedKepler(Kepler):
    """Three steps of the fixed-point iteration."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, eccentricity: Tensor) -> Tensor:
        anomaly = mean.clone()
        for _ in range(3):
            anomaly = mean + eccentricity * anomaly.sin()
        ctx.save_for_backward(anomaly, eccentricity)
        return anomaly


def _bisected(mean: float, e: float) -> float:
    low, high = mean - e, mean + e
    for _ in range(70):
        middle = (low + high) / 2
        low, high = (middle, high) if middle - e * math.sin(middle) < mean else (low, middle)
    return low - (low - e * math.sin(low) - mean) / (1 - e * math.cos(low))


def _kepler(mean: Tensor, e: Tensor) -> Tensor:
    anomaly = mean
    for _ in range(8):
        anomaly = anomaly - (anomaly - e * anomaly.sin() - mean) / (1 - e * anomaly.cos())
    return anomaly


class ConjugateGradients(Function):
    """Solution of a symmetric tridiagonal system; the gradient solves the same system, so that it has a second one."""

    @staticmethod
    def forward(ctx: Any, diagonal: Tensor, beside: Tensor, b: Tensor) -> Tensor:
        x = _conjugate_gradients(diagonal, beside, b, 1e-15)
        ctx.save_for_backward(diagonal, beside, x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        diagonal, beside, x = ctx.saved_tensors
        adjoint = ConjugateGradients.apply(diagonal, beside, g)
        return -adjoint * x, -(adjoint[1:] * x[:-1] + adjoint[:-1] * x[1:]), adjoint


def _half_of_beside(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    diagonal, beside, x = ctx.saved_tensors
    adjoint = ConjugateGradients.apply(diagonal, beside, g)
    return -adjoint * x, -adjoint[1:] * x[:-1], adjoint


@once_differentiable
def _loosely_solved(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    diagonal, beside, x = ctx.saved_tensors
    adjoint = _conjugate_gradients(diagonal, beside, g, 1e-4)
    return -adjoint * x, -(adjoint[1:] * x[:-1] + adjoint[:-1] * x[1:]), adjoint


def _conjugate_gradients(diagonal: Tensor, beside: Tensor, b: Tensor, tolerance: float) -> Tensor:
    x, rest = torch.zeros_like(b), b.clone()
    direction, size = rest.clone(), rest @ rest
    first = size.clone()
    for _ in range(60):
        if size <= tolerance**2 * first:
            break
        image = diagonal * direction
        image[1:] += beside * direction[:-1]
        image[:-1] += beside * direction[1:]
        step = size / (direction @ image)
        x, rest = x + step * direction, rest - step * image
        size, before = rest @ rest, size
        direction = rest + size / before * direction
    return x


def _tridiagonal(diagonal: Tensor, beside: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.solve(diagonal.diag() + beside.diag(1) + beside.diag(-1), b)


IMPLICIT = (
    slow(
        "fixed point",
        FixedPoint,
        one_entry=((0,), "w", (0, 0)),
        throughout=with_backward(FixedPoint, _fixed_point_untransposed),
        approximate=with_backward(FixedPoint, _fixed_point_truncated),
        plain=_fixed_point,
        x=normal(4),
        w=normal(4, 4, scale=0.25),
    ),
    slow(
        "kepler",
        Kepler,
        one_entry=((3,), "eccentricity", (3,)),
        throughout=with_factor(Kepler, 1, -1.0),
        approximate=UnconvergedKepler,
        plain=_kepler,
        mean=uniform(0.3, 3, 12),
        eccentricity=uniform(0.02, 0.1, 12),
    ),
    slow(
        "conjugate gradients",
        ConjugateGradients,
        one_entry=((0,), "diagonal", (0,)),
        throughout=with_backward(ConjugateGradients, _half_of_beside),
        approximate=with_backward(ConjugateGradients, _loosely_solved),
        plain=_tridiagonal,
        diagonal=uniform(2.5, 4, 8),
        beside=normal(7, scale=0.5),
        b=normal(8),
    ),
)
