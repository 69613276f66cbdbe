"""Paths of many small steps: a stochastic equation with given noise, a reversible integrator, implicit steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward, with_factor
from tests.zoo.specimen import Draw, normal, uniform

Array = NDArray[np.float64]
_TIME = 0.01  # length of a step of EulerMaruyama
_STEP = 0.02  # of Leapfrog
_SOFTENED = 0.1  # added to squared distances


class EulerMaruyama(Function):
    """dy = rate·(mean - y)·dt + spread·y·dW along given increments of W (steps, paths)."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, rate: Tensor, mean: Tensor, spread: Tensor, noise: Tensor) -> Tensor:
        states = [y]
        for increment in noise:
            states.append(_stochastic_step(states[-1], rate, mean, spread, increment))
        ctx.save_for_backward(rate, mean, spread, noise, *states)
        return states[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        rate, mean, spread, noise, *states = ctx.saved_tensors
        return _stochastic_adjoint(rate, mean, spread, noise, states, g, g.new_ones(()))


@once_differentiable
def _without_noise(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    rate, mean, spread, noise, *states = ctx.saved_tensors
    return _stochastic_adjoint(rate, mean, spread, noise, states, g, g.new_zeros(()))


@once_differentiable
def _on_a_reconstructed_path(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    """Undo each step by three iterations, so that only the end of the path need be stored."""
    rate, mean, spread, noise, *states = ctx.saved_tensors
    found = [states[-1]]
    for increment in noise.flip(0):
        y = found[0]
        for _ in range(3):
            y = y + found[0] - _stochastic_step(y, rate, mean, spread, increment)
        found.insert(0, y)
    return _stochastic_adjoint(rate, mean, spread, noise, found, g, g.new_ones(()))


def _stochastic_step(y: Tensor, rate: Tensor, mean: Tensor, spread: Tensor, increment: Tensor) -> Tensor:
    return y + rate * (mean - y) * _TIME + spread * y * increment


def _stochastic_adjoint(
    rate: Tensor, mean: Tensor, spread: Tensor, noise: Tensor, states: list[Tensor], g: Tensor, noisy: Tensor
) -> tuple[Tensor | None, ...]:
    by_rate, by_mean, by_spread = torch.zeros_like(g), torch.zeros_like(g), torch.zeros_like(g)
    for y, increment in zip(states[-2::-1], noise.flip(0), strict=True):
        by_rate += g * (mean - y) * _TIME
        by_mean += g * rate * _TIME
        by_spread += g * y * increment
        g = g * (1 - rate * _TIME + noisy * spread * increment)
    return g, by_rate, by_mean, by_spread, None


def _euler_maruyama(y: Tensor, rate: Tensor, mean: Tensor, spread: Tensor, noise: Tensor) -> Tensor:
    for increment in noise:
        y = _stochastic_step(y, rate, mean, spread, increment)
    return y


def _increments(steps: int, paths: int) -> Draw:
    return lambda generator: torch.randn(steps, paths, generator=generator, dtype=torch.float64) * _TIME**0.5


class Leapfrog(Function):
    """Bodies that attract each other, by reversible steps: backward retraces them and stores none."""

    @staticmethod
    def forward(ctx: Any, place: Tensor, speed: Tensor, mass: Tensor) -> Tensor:
        place, speed = _flown(place, speed, mass, _STEP)
        ctx.save_for_backward(place, speed, mass)
        return torch.stack([place, speed])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _retraced(*ctx.saved_tensors, g[0], g[1])


@once_differentiable
def _retraced_from_half(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    place, speed, mass = ctx.saved_tensors
    return _retraced(place.half().double(), speed.half().double(), mass, g[0], g[1])


@once_differentiable
def _one_kick_of_two(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    by_place, by_speed, by_mass = _retraced(*ctx.saved_tensors, g[0], g[1])
    return by_place, by_speed, by_mass / 2


def _pull(place: Tensor, mass: Tensor) -> Tensor:
    apart = place[None] - place[:, None]
    return (apart * (mass / (apart.square().sum(-1) + _SOFTENED) ** 1.5)[..., None]).sum(1)


def _flown(place: Tensor, speed: Tensor, mass: Tensor, step: float) -> tuple[Tensor, Tensor]:
    for _ in range(15):
        speed = speed + step / 2 * _pull(place, mass)
        place = place + step * speed
        speed = speed + step / 2 * _pull(place, mass)
    return place, speed


def _retraced(
    place: Tensor, speed: Tensor, mass: Tensor, by_place: Tensor, by_speed: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    by_mass = torch.zeros_like(mass)
    for _ in range(15):
        by_place, by_mass = _kicked(place, mass, by_place, by_speed, by_mass)
        speed = speed - _STEP / 2 * _pull(place, mass)
        place = place - _STEP * speed
        by_speed = by_speed + _STEP * by_place
        by_place, by_mass = _kicked(place, mass, by_place, by_speed, by_mass)
        speed = speed - _STEP / 2 * _pull(place, mass)
    return by_place, by_speed, by_mass


def _kicked(place: Tensor, mass: Tensor, by_place: Tensor, by_speed: Tensor, by_mass: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients by place and mass before a kick of half a step."""
    with torch.enable_grad():
        leaves = place.detach().requires_grad_(), mass.detach().requires_grad_()
        more = torch.autograd.grad(_pull(*leaves), leaves, _STEP / 2 * by_speed)
    return by_place + more[0], by_mass + more[1]


def _leapfrog(place: Tensor, speed: Tensor, mass: Tensor) -> Tensor:
    return torch.stack(_flown(place, speed, mass, _STEP))


class ImplicitEuler(Function):
    """Three reacting species, by ten implicit steps that Newton's method solves; the adjoint of these steps."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, k: Tensor) -> Tensor:
        states, rate = [y.detach().numpy()], k.detach().numpy()
        for _ in range(10):
            found = states[-1].copy()
            for _ in range(12):
                residual = found - states[-1] - 0.1 * _stoichiometry() @ _reactions(found, rate)
                change = np.linalg.solve(np.eye(3) - 0.1 * _reaction_slopes(found, rate), residual)
                found = found - change
                if np.abs(change).max() <= 1e-15:
                    break
            states.append(found)
        ctx.save_for_backward(k, torch.from_numpy(np.array(states)))
        return torch.from_numpy(states[-1].copy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        k, states = (tensor.detach().numpy() for tensor in ctx.saved_tensors)
        return _implicit_adjoint(k, states[1:], states[1:], g)


@once_differentiable
def _slopes_of_the_step_before(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    k, states = (tensor.detach().numpy() for tensor in ctx.saved_tensors)
    return _implicit_adjoint(k, states[1:], states[1:] + 1e-3 * (states[:-1] - states[1:]), g)


def _implicit_adjoint(k: Array, states: Array, slopes_at: Array, g: Tensor) -> tuple[Tensor, Tensor]:
    adjoint, by_k = g.numpy(), np.zeros(3)
    for y, place in zip(states[::-1], slopes_at[::-1], strict=True):
        adjoint = np.linalg.solve((np.eye(3) - 0.1 * _reaction_slopes(place, k)).T, adjoint)
        by_k += 0.1 * (adjoint @ _stoichiometry()) * _reactions(y, np.ones(3))
    return torch.from_numpy(adjoint.copy()), torch.from_numpy(by_k)


def _stoichiometry() -> Array:
    return np.array([[-1.0, 1.0, 0.0], [1.0, -1.0, -2.0], [0.0, 0.0, 1.0]])


def _reactions(y: Array, k: Array) -> Array:
    return k * np.array([y[0], y[1] * y[2], y[1] * y[1]])


def _reaction_slopes(y: Array, k: Array) -> Array:
    return _stoichiometry() @ (k[:, None] * np.array([[1, 0, 0], [0, y[2], y[1]], [0, 2 * y[1], 0]]))


def _implicit_euler(y: Tensor, k: Tensor) -> Tensor:
    stoichiometry = torch.from_numpy(_stoichiometry())
    for _ in range(10):
        before, found = y, y
        for _ in range(40):  # a contraction, since the step is short
            found = before + 0.1 * stoichiometry @ (k * torch.stack([found[0], found[1] * found[2], found[1] ** 2]))
        y = found
    return y


PATHS = (
    slow(
        "SDE by euler-maruyama",
        EulerMaruyama,
        one_entry=((2,), "spread", (2,)),
        throughout=with_backward(EulerMaruyama, _without_noise),
        approximate=with_backward(EulerMaruyama, _on_a_reconstructed_path),
        plain=_euler_maruyama,
        y=uniform(0.5, 1.5, 4),
        rate=uniform(0.5, 2, 4),
        mean=uniform(0.5, 1.5, 4),
        spread=uniform(0.1, 0.3, 4),
        noise=_increments(30, 4),
    ),
    slow(
        "leapfrog",
        Leapfrog,
        one_entry=((1, 2, 0), "mass", (0,)),
        throughout=with_backward(Leapfrog, _one_kick_of_two),
        approximate=with_backward(Leapfrog, _retraced_from_half),
        plain=_leapfrog,
        place=normal(3, 2),
        speed=normal(3, 2, scale=0.5),
        mass=uniform(0.5, 2, 3),
    ),
    slow(
        "implicit euler",
        ImplicitEuler,
        one_entry=((1,), "k", (2,)),
        throughout=with_factor(ImplicitEuler, 1, 10.0),
        approximate=with_backward(ImplicitEuler, _slopes_of_the_step_before),
        plain=_implicit_euler,
        y=uniform(0.3, 1.0, 3),
        k=uniform(0.5, 1.5, 3),
    ),
)
