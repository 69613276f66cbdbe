"""Hidden mistakes of the second derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, uniform


class _PowerSlope(Function):
    """grad * p * sign(x) * abs(x)**(p - 1)."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(grad, x)
        ctx.p = p
        return grad * p * x.sign() * x.abs() ** (p - 1)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
        grad, x = ctx.saved_tensors
        p = ctx.p
        of_grad = cotangent * p * x.sign() * x.abs() ** (p - 1)
        return of_grad, cotangent * grad * p * (p - 1) * x.abs() ** (p - 2), None


class _PowerSlopeOfSquare(_PowerSlope):
    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
        grad, x = ctx.saved_tensors
        p = ctx.p
        of_grad = cotangent * p * x.sign() * x.abs() ** (p - 1)
        return of_grad, cotangent * grad * p * (p - 1), None


class Power(Function):
    """abs(x)**p for a p of at least 2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        if not p >= 2:
            raise ValueError("p must be at least 2")
        ctx.save_for_backward(x)
        ctx.p = p
        return x.abs() ** p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _PowerSlope.apply(grad, x, ctx.p), None


class PowerOfSquare(Power):
    """The second derivative lacks abs(x)**(p - 2), which is 1 for a square."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _PowerSlopeOfSquare.apply(grad, x, ctx.p), None


class _HingeSlope(Function):
    """-2 * grad * relu(margin - x)."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, margin: float) -> Tensor:
        gap = (margin - x).relu()
        ctx.save_for_backward(grad, gap)
        return -2 * grad * gap

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
        grad, gap = ctx.saved_tensors
        return -2 * cotangent * gap, 2 * cotangent * grad * (gap > 0), None


class _HingeSlopeUnmasked(_HingeSlope):
    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
        grad, gap = ctx.saved_tensors
        return -2 * cotangent * gap, 2 * cotangent * grad, None


class SquaredHinge(Function):
    """relu(margin - x)**2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, margin: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.margin = margin
        return (margin - x).relu().square()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _HingeSlope.apply(grad, x, ctx.margin), None


class SquaredHingeUnmasked(SquaredHinge):
    """The second derivative is 2 beyond the margin too."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _HingeSlopeUnmasked.apply(grad, x, ctx.margin), None


SECOND_ORDER = (
    Hidden(
        name="power",
        change="second order",
        wrong=PowerOfSquare,
        right=Power,
        inputs=lambda: (normal(80, 4), 2.0),
        shows_at=lambda: (normal(80, 4), 3.0),
        declared={"ranges": {"p": (2.0, 4.0)}},
    ),
    Hidden(
        name="squared hinge",
        change="second order",
        wrong=SquaredHingeUnmasked,
        right=SquaredHinge,
        inputs=lambda: (uniform(81, -1.5, 0.8, 5), 1.0),
        shows_at=lambda: (torch.tensor([0.3, 1.6, -0.4], dtype=torch.float64, requires_grad=True), 1.0),
    ),
)
