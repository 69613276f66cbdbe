"""Differential equations integrated step by step, with gradients by an adjoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward, with_factor
from tests.zoo.specimen import at, normal

Array = NDArray[np.float64]
_STEPS, _STEP = 12, 0.5  # of RungeKutta4


class RungeKutta4(Function):
    """y' = tanh(W·y + b) by twelve steps of the classical method, with the adjoint of these steps."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
        states = [y]
        for _ in range(_STEPS):
            states.append(_runge_kutta_step(lambda y: torch.tanh(w @ y + b), states[-1], _STEP))
        ctx.save_for_backward(w, b, *states)
        return states[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        w, b, *states = ctx.saved_tensors
        by_w, by_b = torch.zeros_like(w), torch.zeros_like(b)
        for y in reversed(states[:-1]):
            places, slopes = [y], []
            for part in (0.5, 0.5, 1.0, 0.0):
                slopes.append(torch.tanh(w @ places[-1] + b))
                places.append(y + part * _STEP * slopes[-1])
            by_y, adjoint = g.clone(), torch.zeros_like(g)
            for place, slope, weight, part in zip(
                places[3::-1], slopes[::-1], (1 / 6, 1 / 3, 1 / 3, 1 / 6), (0.0, 1.0, 0.5, 0.5), strict=True
            ):
                inner = (1 - slope * slope) * _STEP * (weight * g + part * adjoint)
                adjoint = w.T @ inner
                by_y += adjoint
                by_w += torch.outer(inner, place)
                by_b += inner
            g = by_y
        return g, by_w, by_b


@once_differentiable
def _continuous_adjoint(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Integrate state and adjoint back in time by the same method."""
    w, b, *states = ctx.saved_tensors
    n = len(b)

    def slope(whole: Tensor) -> Tensor:
        y, adjoint = whole[:n], whole[n : 2 * n]
        value = torch.tanh(w @ y + b)
        inner = (1 - value * value) * adjoint
        return -torch.cat([value, -w.T @ inner, -torch.outer(inner, y).reshape(-1), -inner])

    whole = torch.cat([states[-1], g, g.new_zeros(n * n + n)])
    for _ in range(_STEPS):
        whole = _runge_kutta_step(slope, whole, _STEP)
    return whole[n : 2 * n], whole[2 * n : -n].reshape(n, n), whole[-n:]


def _runge_kutta_step(slope: Callable[[Tensor], Tensor], y: Tensor, step: float) -> Tensor:
    one = slope(y)
    two = slope(y + 0.5 * step * one)
    three = slope(y + 0.5 * step * two)
    four = slope(y + step * three)
    return y + step / 6 * (one + 2 * two + 2 * three + four)


def _runge_kutta(y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    for _ in range(_STEPS):
        y = _runge_kutta_step(lambda y: torch.tanh(w @ y + b), y, _STEP)
    return y


class LotkaVolterra(Function):
    """Prey and predators after one unit of time, by steps of adapted length; the adjoint is integrated back alike."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, rates: Tensor) -> Tensor:
        rate = rates.detach().numpy()
        end = _adaptive(lambda y: _populations(y, rate), start.detach().numpy(), 1e-11)
        result = torch.from_numpy(end)
        ctx.save_for_backward(rates, result)
        return result.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        return _populations_adjoint(ctx, g, 1e-11)


@once_differentiable
def _loose_adjoint(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    return _populations_adjoint(ctx, g, 1e-4)


def _populations(y: Array, rate: Array) -> Array:
    prey, hunters = float(y[0]), float(y[1])
    a, b, c, d = rate.tolist()
    return np.array([prey * (a - b * hunters), hunters * (d * prey - c)])


def _populations_adjoint(ctx: Any, g: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    rates, end = (tensor.detach().numpy() for tensor in ctx.saved_tensors)
    a, b, c, d = rates.tolist()

    def back(whole: Array) -> Array:
        prey, hunters, first, second = whole[:4].tolist()
        return np.array(
            [
                -prey * (a - b * hunters),
                -hunters * (d * prey - c),
                first * (a - b * hunters) + second * d * hunters,
                -first * b * prey + second * (d * prey - c),
                first * prey,
                -first * prey * hunters,
                -second * hunters,
                second * prey * hunters,
            ]
        )

    whole = torch.from_numpy(_adaptive(back, np.concatenate([end, g.numpy(), np.zeros(4)]), tolerance))
    return whole[2:4].clone(), whole[4:].clone()


def _adaptive(slope: Callable[[Array], Array], y: Array, tolerance: float) -> Array:
    """Integrate from 0 to 1 by the pair of orders 5 and 4 of Dormand and Prince."""
    time, step, first = 0.0, 0.05, slope(y)
    while time < 1.0:
        step = min(step, 1.0 - time)
        slopes = [first]
        for row in _DORMAND_PRINCE:
            slopes.append(slope(y + step * (row @ np.array(slopes))))
        error = step * np.abs(_EMBEDDED @ np.array(slopes)).max() / (tolerance * (1 + np.abs(y).max()))
        if error <= 1.0:
            time, first = time + step, slopes[-1]
            y = y + step * (_DORMAND_PRINCE[-1] @ np.array(slopes[:-1]))
        step *= min(5.0, max(0.2, 0.9 * (error + 1e-30) ** -0.2))
    return y


_DORMAND_PRINCE = [
    np.array(row)
    for row in (
        [1 / 5],
        [3 / 40, 9 / 40],
        [44 / 45, -56 / 15, 32 / 9],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
        [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
    )
]
_EMBEDDED = np.array([71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40])


def _lotka_volterra(start: Tensor, rates: Tensor) -> Tensor:
    def slope(y: Tensor) -> Tensor:
        return torch.stack([y[0] * (rates[0] - rates[1] * y[1]), y[1] * (rates[3] * y[0] - rates[2])])

    for _ in range(500):
        start = _runge_kutta_step(slope, start, 1 / 500)
    return start


ODES = (
    slow(
        "runge-kutta",
        RungeKutta4,
        one_entry=((1,), "b", (1,)),
        throughout=with_factor(RungeKutta4, 1, 1 / _STEP),
        approximate=with_backward(RungeKutta4, _continuous_adjoint),
        plain=_runge_kutta,
        y=normal(3),
        w=normal(3, 3),
        b=normal(3),
    ),
    slow(
        "adaptive ODE",
        LotkaVolterra,
        one_entry=((1,), "rates", (3,)),
        throughout=with_factor(LotkaVolterra, 1, -1.0),
        approximate=with_backward(LotkaVolterra, _loose_adjoint),
        plain=_lotka_volterra,
        start=at(1.2, 0.8),
        rates=at(1.1, 0.7, 0.9, 0.6),
    ),
)
