"""Minimisers: interior point, active set and coordinate descent, with gradients by their optimality conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward, with_factor
from tests.zoo.specimen import at, normal, uniform

Array = NDArray[np.float64]
_Q = np.diag([2.0, 1.0, 1.5, 1.0]) + 0.3


class QuadraticProgram(Function):
    """min ½z·Qz + p·z subject to G·z ≤ h, by an interior point method."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, g: Tensor, h: Tensor) -> Tensor:
        return _solved_program(ctx, p, g, h, 1e-14)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z, multipliers, by_z, by_multipliers = _program_adjoints(ctx, cotangent)
        by_g = torch.outer(multipliers * by_multipliers, z) + torch.outer(multipliers, by_z)
        return by_z, by_g, -multipliers * by_multipliers


class LooseQuadraticProgram(QuadraticProgram):
    """Stops at a duality gap of 1e-6."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, g: Tensor, h: Tensor) -> Tensor:
        return _solved_program(ctx, p, g, h, 1e-6)


@once_differentiable
def _without_multipliers(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z, multipliers, by_z, by_multipliers = _program_adjoints(ctx, cotangent)
    return by_z, torch.outer(multipliers * by_multipliers, z), -multipliers * by_multipliers


def _solved_program(ctx: Any, p: Tensor, g: Tensor, h: Tensor, gap: float) -> Tensor:
    z, multipliers = _interior_point(p.detach().numpy(), g.detach().numpy(), h.detach().numpy(), gap)
    solution = torch.from_numpy(z)
    ctx.save_for_backward(g, h, solution, torch.from_numpy(multipliers))
    return solution.clone()


def _interior_point(p: Array, g: Array, h: Array, gap: float) -> tuple[Array, Array]:
    count, size = g.shape
    z, slack, multipliers = np.zeros(size), np.ones(count), np.ones(count)
    for _ in range(60):
        mean = float(slack @ multipliers) / count
        residual = np.concatenate([_Q @ z + p + g.T @ multipliers, g @ z + slack - h])
        if mean <= gap and np.abs(residual).max() <= 1e-12:
            break
        target = 0.1 * mean - slack * multipliers
        system = np.block([[_Q, g.T], [g, -np.diag(slack / multipliers)]])
        step = np.linalg.solve(system, -residual - np.concatenate([np.zeros(size), target / multipliers]))
        by_multipliers = step[size:]
        by_slack = (target - slack * by_multipliers) / multipliers
        length = 1.0
        for value, change in ((slack, by_slack), (multipliers, by_multipliers)):
            falling = change < 0
            length = min(length, 0.99 * float(np.min(-value[falling] / change[falling], initial=2.0)))
        z, slack, multipliers = (
            z + length * step[:size],
            slack + length * by_slack,
            multipliers + length * by_multipliers,
        )
    return z, multipliers


def _program_adjoints(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g, h, z, multipliers = ctx.saved_tensors
    q = torch.from_numpy(_Q)
    system = torch.cat([torch.cat([q, g.T * multipliers], 1), torch.cat([g, (g @ z - h).diag()], 1)])
    both = -torch.linalg.solve(system, torch.cat([cotangent, torch.zeros_like(h)]))
    return z, multipliers, both[: len(z)], both[len(z) :]


def _program(p: Tensor, g: Tensor, h: Tensor) -> Tensor:
    _, multipliers = _interior_point(p.detach().numpy(), g.detach().numpy(), h.detach().numpy(), 1e-14)
    tight = g[torch.from_numpy(multipliers > 1e-6)]
    limits = h[torch.from_numpy(multipliers > 1e-6)]
    zero = torch.zeros(len(tight), len(tight), dtype=p.dtype)
    system = torch.cat([torch.cat([torch.from_numpy(_Q), tight.T], 1), torch.cat([tight, zero], 1)])
    return torch.linalg.solve(system, torch.cat([-p, limits]))[: len(p)]


class NonNegativeLeastSquares(Function):
    """min |A·x - b| with x ≥ 0, by the active set method of Lawson and Hanson."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        x, used = _lawson_hanson(a.detach().numpy(), b.detach().numpy())
        solution = torch.from_numpy(x)
        ctx.save_for_backward(a, b, solution, torch.from_numpy(used))
        return solution.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, b, x, used = ctx.saved_tensors
        return _least_squares_gradient(a, b - a @ x, x, used, g, 0.0)


@once_differentiable
def _without_residual(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    a, b, x, used = ctx.saved_tensors
    return _least_squares_gradient(a, torch.zeros_like(b), x, used, g, 0.0)


@once_differentiable
def _with_ridge(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    a, b, x, used = ctx.saved_tensors
    return _least_squares_gradient(a, b - a @ x, x, used, g, 1e-6)


def _least_squares_gradient(
    a: Tensor, residual: Tensor, x: Tensor, used: Tensor, g: Tensor, ridge: float
) -> tuple[Tensor, Tensor]:
    kept = a[:, used]
    solved = torch.linalg.solve(kept.T @ kept + ridge * torch.eye(kept.shape[1], dtype=a.dtype), g[used])
    by_a, by_b = torch.zeros_like(a), kept @ solved
    by_a[:, used] = torch.outer(residual, solved) - torch.outer(by_b, x[used])
    return by_a, by_b


def _lawson_hanson(a: Array, b: Array) -> tuple[Array, NDArray[np.bool_]]:
    x, used = np.zeros(a.shape[1]), np.zeros(a.shape[1], dtype=bool)
    for _ in range(30):
        slope = a.T @ (b - a @ x)
        if used.all() or slope[~used].max() <= 1e-12:
            break
        used[np.where(used, -np.inf, slope).argmax()] = True
        while True:
            trial = np.zeros_like(x)
            trial[used] = np.linalg.lstsq(a[:, used], b, rcond=None)[0]
            if (trial[used] > 0).all():
                break
            negative = used & (trial <= 0)
            x += (x[negative] / (x[negative] - trial[negative])).min() * (trial - x)
            used &= x > 1e-14
        x = trial
    return x, used


def _least_squares(a: Tensor, b: Tensor) -> Tensor:
    used = torch.from_numpy(_lawson_hanson(a.detach().numpy(), b.detach().numpy())[1])
    kept = a[:, used]
    return torch.zeros_like(a[0]).index_put((used.nonzero()[:, 0],), torch.linalg.solve(kept.T @ kept, kept.T @ b))


class Lasso(Function):
    """min ½|D·x - y|² + weight·|x|₁, by coordinate descent."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return _descended(ctx, d, y, weight, 400)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d, y, x = ctx.saved_tensors
        used = x != 0
        by_d, by_y = _least_squares_gradient(d, y - d @ x, x, used, g, 0.0)
        solved = torch.linalg.solve(d[:, used].T @ d[:, used], g[used])
        return by_d, by_y, -(x[used].sign() @ solved)


class UnconvergedLasso(Lasso):
    """Few sweeps."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return _descended(ctx, d, y, weight, 25)


def _descended(ctx: Any, d: Tensor, y: Tensor, weight: Tensor, sweeps: int) -> Tensor:
    columns, threshold = d.detach().numpy().T.copy(), float(weight)
    x, residual = [0.0] * len(columns), y.detach().numpy().copy()
    sizes = [float(column @ column) for column in columns]
    for _ in range(sweeps):
        change = 0.0
        for k, column in enumerate(columns):
            slope = float(column @ residual) + sizes[k] * x[k]
            moved = max(abs(slope) - threshold, 0.0) / sizes[k] * (1 if slope > 0 else -1)
            residual -= (moved - x[k]) * column
            change, x[k] = max(change, abs(moved - x[k])), moved
        if change <= 1e-16:
            break
    solution = torch.tensor(x, dtype=d.dtype)
    ctx.save_for_backward(d, y, solution)
    return solution.clone()


def _lasso(d: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    with torch.no_grad():
        x = Lasso.apply(d, y, weight)
    used = x != 0
    kept = d[:, used]
    found = torch.linalg.solve(kept.T @ kept, kept.T @ y - weight * x[used].sign())
    return torch.zeros_like(x).index_put((used.nonzero()[:, 0],), found)


OPTIMISATION = (
    slow(
        "quadratic program",
        QuadraticProgram,
        one_entry=((0,), "h", (0,)),
        throughout=with_backward(QuadraticProgram, _without_multipliers),
        approximate=LooseQuadraticProgram,
        plain=_program,
        p=at(-2.0, -1.0, 1.0, 0.5),
        g=at(
            [1.0, 0.2, 0.0, 0.1],
            [-0.3, 1.0, 0.4, 0.0],
            [0.0, 0.1, 1.0, 0.3],
            [0.2, 0.0, -1.0, 0.1],
            [0.1, -0.2, 0.3, -1.0],
        ),
        h=at(0.5, 0.9, 2.0, 0.6, 0.4),
    ),
    slow(
        "non-negative least squares",
        NonNegativeLeastSquares,
        one_entry=((0,), "b", (2,)),
        throughout=with_backward(NonNegativeLeastSquares, _without_residual),
        approximate=with_backward(NonNegativeLeastSquares, _with_ridge),
        plain=_least_squares,
        a=uniform(0.1, 1.5, 6, 4),
        b=normal(6, shift=1.0),
    ),
    slow(
        "lasso",
        Lasso,
        one_entry=((2,), "weight", ()),
        throughout=with_factor(Lasso, 2, -1.0),
        approximate=UnconvergedLasso,
        plain=_lasso,
        d=normal(8, 4),
        y=normal(8, scale=2),
        weight=at(0.3),
    ),
)
