"""Hand-written Functions of layers, solvers and tables, with a right backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional


class Linear(Function):
    """Linear layer that computes only the gradients that are needed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, w)
        y = x @ w.mT
        return y if b is None else y + b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (g @ w if needs[0] else None, g.mT @ x if needs[1] else None, g.sum(0) if needs[2] else None)


class LayerNorm(Function):
    """Layer norm that saves the normalised values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        inverse = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        z = (x - x.mean(-1, keepdim=True)) * inverse
        ctx.save_for_backward(z, inverse, w)
        return z * w + b

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        z, inverse, w = ctx.saved_tensors
        h = g * w
        dx = inverse * (h - h.mean(-1, keepdim=True) - z * (h * z).mean(-1, keepdim=True))
        return dx, (g * z).sum(0), g.sum(0)


class CrossEntropy(Function):
    """Cross entropy that computes its gradient in forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        logs = x.log_softmax(-1)
        ctx.gradient = (logs.exp() - functional.one_hot(y, x.shape[-1])) / len(x)
        return -logs[torch.arange(len(x)), y].mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * ctx.gradient, None


class ScatterSum(Function):
    """Sum by index, with an integer input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        return x.new_zeros(size).index_add(0, index, x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return g[ctx.saved_tensors[0]], None, None


class MaxWithIndex(Function):
    """Maximum with its index, an output that is marked non-differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = x.max(-1)
        ctx.save_for_backward(places)
        ctx.size = x.shape[-1]
        ctx.mark_non_differentiable(places)
        return values, places

    @staticmethod
    def backward(ctx: Any, g: Tensor, unused: Any) -> Tensor:
        (places,) = ctx.saved_tensors
        return functional.one_hot(places, ctx.size) * g.unsqueeze(-1)


class Cholesky(Function):
    """Cholesky factor with Murray's formula for a symmetric argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        factor = torch.linalg.cholesky((x + x.mT) / 2)
        ctx.save_for_backward(factor)
        return factor

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (factor,) = ctx.saved_tensors
        middle = (factor.mT @ g.tril()).tril()
        middle = middle - middle.diag().diag() / 2
        inverse = torch.linalg.inv(factor)
        full = inverse.mT @ middle @ inverse
        return (full + full.mT) / 2


class Inverse(Function):
    """Matrix inverse that saves its output."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        inverse = torch.linalg.inv(a)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -inverse.mT @ g @ inverse.mT


class Conv(Function):
    """Convolution with torch's own gradient functions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return functional.conv1d(x, w, padding=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return (
            torch.nn.grad.conv1d_input(x.shape, w, g, padding=1),
            torch.nn.grad.conv1d_weight(x, w.shape, g, padding=1),
        )


class Fixpoint(Function):
    """Solution of y = tanh(W y + x), differentiated implicitly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for _ in range(80):
            y = (w @ y + x).tanh()
        ctx.save_for_backward(y, w)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        y, w = ctx.saved_tensors
        slope = 1 - y * y
        system = torch.eye(len(y), dtype=y.dtype) - slope[:, None] * w
        solved = torch.linalg.solve(system.mT, g) * slope
        return solved, torch.outer(solved, y)


class Interpolate(Function):
    """Linear interpolation in a table; saves an intermediate."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, x: Tensor) -> Tensor:
        low = x.floor().long()
        share = x - low
        ctx.save_for_backward(table, low, share)
        return table[low] * (1 - share) + table[low + 1] * share

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        table, low, share = ctx.saved_tensors
        into = torch.zeros_like(table).index_add(0, low, g * (1 - share)).index_add(0, low + 1, g * share)
        return into, g * (table[low + 1] - table[low])
