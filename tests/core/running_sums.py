"""A running sum with a Jacobian too large to hold, and wrong gradients of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SIZE = 2_001  # its square exceeds the limit of a dense comparison
Wrong = Callable[[Tensor, Tensor, Tensor], Tensor]  # (gradient, cotangent, x) -> what backward returns instead


def point(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(SIZE, generator=generator, dtype=torch.float64) + 0.5).requires_grad_()


def running(wrong: Wrong = lambda gradient, cotangent, x: gradient) -> Callable[[Tensor], Tensor]:
    """Return a running sum of sines, each output of which depends on every input before it."""

    class Running(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin().cumsum(0)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return wrong(grad.flip(0).cumsum(0).flip(0) * x.cos(), grad, x)

    return Running.apply


def one_entry(row: int, column: int, relative: float) -> Wrong:
    def wrong(gradient: Tensor, cotangent: Tensor, x: Tensor) -> Tensor:
        changed = gradient.clone()
        changed[column] += cotangent[row] * x[column].cos() * relative
        return changed

    return wrong


def one_column(column: int, factor: float) -> Wrong:
    def wrong(gradient: Tensor, cotangent: Tensor, x: Tensor) -> Tensor:
        changed = gradient.clone()
        changed[column] *= factor
        return changed

    return wrong
