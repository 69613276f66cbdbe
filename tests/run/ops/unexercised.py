"""Functions with code that few inputs reach."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Clipped(torch.autograd.Function):
    """min(x, limit), and a bias that may be left out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float = 100.0, bias: float | None = None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.limit = limit
        y = torch.where(x > limit, limit, x)
        if bias is not None:
            y = y + bias
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return torch.where(x > ctx.limit, 0.0, grad), None, None


def twice_clipped(x: Tensor) -> Tensor:
    """Return 2 min(x, 100), by the Function."""
    return 2 * Clipped.apply(x, 100.0, None)


class Layer(torch.nn.Module):
    """Scales what is above one hundred."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.where(x > 100, self.weight, 1.0)


class Weighted(torch.autograd.Function):
    """x * w; the gradient by w is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad * w, 2 * grad * x


class Picked(torch.autograd.Function):
    """x[places]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        return x[places]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_add(0, places, grad), None
