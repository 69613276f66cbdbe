"""Maps onto a simplex: sparse probabilities by bisection, and a transport plan by Sinkhorn's iteration."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward
from tests.zoo.specimen import normal, uniform


class Entmax(Function):
    """1.5-entmax of each row: squares of (x/2 - t)₊ that add up to one, with t found by bisection."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        p = _entmax_by_bisection(x, 60)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        root = ctx.saved_tensors[0].sqrt()
        return root * (g - (root * g).sum(-1, keepdim=True) / root.sum(-1, keepdim=True))


class CoarseEntmax(Entmax):
    """t after 16 halvings, and the squares divided by their sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        p = _entmax_by_bisection(x, 16)
        ctx.save_for_backward(p)
        return p


@once_differentiable
def _as_for_softmax(ctx: Any, g: Tensor) -> Tensor:
    (p,) = ctx.saved_tensors
    return p * (g - (p * g).sum(-1, keepdim=True))


def _entmax_by_bisection(x: Tensor, halvings: int) -> Tensor:
    half = x / 2
    low = half.amax(-1, keepdim=True) - 1
    width = 1 - x.shape[-1] ** -0.5
    for _ in range(halvings):
        width /= 2
        middle = low + width
        low = torch.where((half - middle).clamp(min=0).square().sum(-1, keepdim=True) >= 1, middle, low)
    p = (half - low).clamp(min=0).square()
    return p / p.sum(-1, keepdim=True)


def _entmax(x: Tensor) -> Tensor:
    half = x / 2
    with torch.no_grad():
        t = half - _entmax_by_bisection(x, 60).sqrt()
        support = t < half
    rows = []
    for row, inside in zip(half, support, strict=True):
        kept = row[inside]
        mean, variance = kept.mean(), kept.var(correction=0)
        rows.append((row - mean + (1 / len(kept) - variance).sqrt()).square() * inside)
    return torch.stack(rows)


class Sinkhorn(Function):
    """Entropic transport plan for a cost, between uniform marginals; the gradient solves for the two potentials."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor) -> Tensor:
        plan = _scaled(cost, 400)
        ctx.save_for_backward(plan)
        return plan

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (plan,) = ctx.saved_tensors
        weighted, rows = plan * g, len(plan)
        system = torch.cat(
            [torch.cat([plan.sum(1).diag(), plan], 1), torch.cat([plan.T, plan.sum(0).diag()], 1)]
        )  # singular: a constant may move from one potential to the other
        both = torch.linalg.pinv(system) @ torch.cat([weighted.sum(1), weighted.sum(0)])
        return -2 * plan * (g - both[:rows, None] - both[rows:])


@once_differentiable
def _without_potentials(ctx: Any, g: Tensor) -> Tensor:
    return -2 * ctx.saved_tensors[0] * g


@once_differentiable
def _few_scalings_of_potentials(ctx: Any, g: Tensor) -> Tensor:
    (plan,) = ctx.saved_tensors
    weighted, by_column = plan * g, torch.zeros_like(plan[0])
    for _ in range(3):
        by_row = (weighted.sum(1) - plan @ by_column) / plan.sum(1)
        by_column = (weighted.sum(0) - by_row @ plan) / plan.sum(0)
    return -2 * plan * (g - by_row[:, None] - by_column)


def _scaled(cost: Tensor, most: int) -> Tensor:
    kernel, column = (-2 * cost).exp(), torch.ones_like(cost[0])
    rows, columns = cost.shape
    for _ in range(most):
        row = 1 / rows / (kernel @ column)
        column, before = 1 / columns / (row @ kernel), column
        if ((column - before).abs() <= 1e-15 * column).all():
            break
    return row[:, None] * kernel * column


SIMPLEX = (
    slow(
        "entmax by bisection",
        Entmax,
        one_entry=((1, 2), "x", (1, 2)),
        throughout=with_backward(Entmax, _as_for_softmax),
        approximate=CoarseEntmax,
        plain=_entmax,
        x=normal(3, 6),
    ),
    slow(
        "sinkhorn plan",
        Sinkhorn,
        one_entry=((0, 0), "cost", (0, 0)),
        throughout=with_backward(Sinkhorn, _without_potentials),
        approximate=with_backward(Sinkhorn, _few_scalings_of_potentials),
        plain=lambda cost: _scaled(cost, 400),
        cost=uniform(0, 1, 4, 5),
    ),
)
