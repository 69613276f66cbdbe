"""Reversible layers, a filter written as a numpy kernel, and a solver in Python loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward
from tests.zoo.specimen import normal, uniform

Array = NDArray[np.float64]
_LAYERS = 8


class Reversible(Function):
    """Additive coupling, layer after layer; backward reconstructs the inputs of each layer from its outputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        y = _coupled(x, first, second)
        ctx.save_for_backward(y, first, second)
        return y.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _uncoupled(*ctx.saved_tensors, g)


@once_differentiable
def _reconstructed_from_half(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, first, second = ctx.saved_tensors
    return _uncoupled(y.half().double(), first, second, g)


@once_differentiable
def _last_layer_only(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, first, second = ctx.saved_tensors
    left = y.chunk(2)[0]
    slope = 1 - torch.tanh(second @ left) ** 2
    by_x, by_first, _ = _uncoupled(y, first, second, g)
    return by_x, by_first, 0.3 * torch.outer(slope * g.chunk(2)[1], left)


def _coupled(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    left, right = x.chunk(2)
    for _ in range(_LAYERS):
        left = left + 0.3 * torch.tanh(first @ right)
        right = right + 0.3 * torch.tanh(second @ left)
    return torch.cat([left, right])


def _uncoupled(y: Tensor, first: Tensor, second: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (left, right), (by_left, by_right) = y.chunk(2), g.chunk(2)
    by_first, by_second = torch.zeros_like(first), torch.zeros_like(second)
    for _ in range(_LAYERS):
        value = torch.tanh(second @ left)
        right, inner = right - 0.3 * value, 0.3 * (1 - value**2) * by_right
        by_second += torch.outer(inner, left)
        by_left = by_left + second.T @ inner
        value = torch.tanh(first @ right)
        left, inner = left - 0.3 * value, 0.3 * (1 - value**2) * by_left
        by_first += torch.outer(inner, right)
        by_right = by_right + first.T @ inner
    return torch.cat([by_left, by_right]), by_first, by_second


class Bilateral(Function):
    """Edge-preserving filter of an image, pixel after pixel in numpy."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, sharpness: Tensor) -> Tensor:
        ctx.save_for_backward(image, sharpness)
        pixels, rate = image.detach().numpy(), float(sharpness)
        found = np.zeros_like(pixels)
        for place in np.ndindex(pixels.shape):
            weights, window = _window(pixels, place, rate)
            found[place] = (weights * window).sum() / weights.sum()
        return torch.from_numpy(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        return _bilateral_gradient(ctx, g, 1.0, 0.0)


@once_differentiable
def _constant_weights(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    return _bilateral_gradient(ctx, g, 0.0, 0.0)


@once_differentiable
def _small_weights_skipped(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    return _bilateral_gradient(ctx, g, 1.0, 1e-4)


def _window(pixels: Array, place: tuple[int, ...], rate: float) -> tuple[Array, Array]:
    """Return the weights and the values of the pixels up to one away."""
    window = pixels[_around(place)]
    return np.exp(-rate * (window - pixels[place]) ** 2), window


def _around(place: tuple[int, ...]) -> tuple[slice, slice]:
    return slice(max(0, place[0] - 1), place[0] + 2), slice(max(0, place[1] - 1), place[1] + 2)


def _bilateral_gradient(ctx: Any, g: Tensor, of_weights: float, least: float) -> tuple[Tensor, Tensor]:
    image, sharpness = ctx.saved_tensors
    pixels, rate, cotangent = image.detach().numpy(), float(sharpness), g.detach().numpy()
    by_image, by_rate = np.zeros_like(pixels), 0.0
    for place in np.ndindex(pixels.shape):
        weights, window = _window(pixels, place, rate)
        kept = np.where(weights < least, 0.0, weights)
        share, apart = cotangent[place] * kept / weights.sum(), window - pixels[place]
        by_weight = share * (window - (weights * window).sum() / weights.sum())
        pull = of_weights * 2 * rate * apart * by_weight
        by_image[_around(place)] += share - pull
        by_image[place] += pull.sum()
        by_rate -= of_weights * (apart**2 * by_weight).sum()
    return torch.from_numpy(by_image), sharpness.new_tensor(by_rate)


def _bilateral(image: Tensor, sharpness: Tensor) -> Tensor:
    found = []
    for place in np.ndindex(tuple(image.shape)):
        window = image[_around(place)]
        weights = (-sharpness * (window - image[place]) ** 2).exp()
        found.append((weights * window).sum() / weights.sum())
    return torch.stack(found).view_as(image)


class Thomas(Function):
    """Solution of a tridiagonal system by elimination; backward calls it for the transposed one."""

    @staticmethod
    def forward(ctx: Any, lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> Tensor:
        x = _eliminated(lower, diagonal, upper, b)
        ctx.save_for_backward(lower, diagonal, upper, x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        lower, diagonal, upper, x = ctx.saved_tensors
        return _thomas_gradient(x, Thomas.apply(upper, diagonal, lower, g))


def _not_transposed(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lower, diagonal, upper, x = ctx.saved_tensors
    return _thomas_gradient(x, Thomas.apply(lower, diagonal, upper, g))


@once_differentiable
def _by_six_sweeps(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lower, diagonal, upper, x = ctx.saved_tensors
    adjoint = torch.zeros_like(g)
    for _ in range(6):
        for i in range(len(g)):
            rest = g[i].clone()
            rest -= upper[i - 1] * adjoint[i - 1] if i else 0.0
            rest -= lower[i] * adjoint[i + 1] if i + 1 < len(g) else 0.0
            adjoint[i] = rest / diagonal[i]
    return _thomas_gradient(x, adjoint)


def _thomas_gradient(x: Tensor, adjoint: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return -adjoint[1:] * x[:-1], -adjoint * x, -adjoint[:-1] * x[1:], adjoint


def _eliminated(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> Tensor:
    pivots, rests = [diagonal[0]], [b[0]]
    for i in range(1, len(b)):
        factor = lower[i - 1] / pivots[-1]
        pivots.append(diagonal[i] - factor * upper[i - 1])
        rests.append(b[i] - factor * rests[-1])
    x = [rests[-1] / pivots[-1]]
    for i in range(len(b) - 2, -1, -1):
        x.insert(0, (rests[i] - upper[i] * x[0]) / pivots[i])
    return torch.stack(x)


def _solved(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.solve(lower.diag(-1) + diagonal.diag() + upper.diag(1), b)


BLOCKS = (
    slow(
        "reversible layers",
        Reversible,
        one_entry=((3,), "second", (0, 0)),
        throughout=with_backward(Reversible, _last_layer_only),
        approximate=with_backward(Reversible, _reconstructed_from_half),
        plain=_coupled,
        x=normal(6),
        first=normal(3, 3),
        second=normal(3, 3),
    ),
    slow(
        "bilateral filter",
        Bilateral,
        one_entry=((2, 2), "image", (2, 2)),
        throughout=with_backward(Bilateral, _constant_weights),
        approximate=with_backward(Bilateral, _small_weights_skipped),
        plain=_bilateral,
        image=normal(4, 5),
        sharpness=uniform(2.0, 2.5),
    ),
    slow(
        "tridiagonal solve",
        Thomas,
        one_entry=((0,), "upper", (0,)),
        throughout=with_backward(Thomas, _not_transposed),
        approximate=with_backward(Thomas, _by_six_sweeps),
        plain=_solved,
        lower=normal(7, scale=0.5),
        diagonal=uniform(2.5, 4, 8),
        upper=normal(7, scale=0.5),
        b=normal(8),
    ),
)
