"""Hidden mistakes that show at another rank, dtype, scale or memory layout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, numbers, uniform


class Linear(Function):
    """x @ weight.T + bias: (..., n, i), (o, i), (o,) -> (..., n, o)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if x.dim() < 2 or weight.dim() != 2 or bias.shape != weight.shape[:1]:
            raise ValueError("x must be (..., n, i), weight (o, i), bias (o,)")
        ctx.save_for_backward(x, weight)
        return x @ weight.mT + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        return grad @ weight, rows.mT @ x.flatten(0, -2), rows.sum(0)


class LinearAveraged(Linear):
    """The gradient of the weight is averaged over batches instead of added up."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        products = grad.mT @ x
        if products.dim() > 2:
            products = products.flatten(0, -3).mean(0)
        return grad @ weight, products, grad.flatten(0, -2).sum(0)


class Smoothed(Function):
    """Exponential smoothing along the last dimension: y[t] = x[t] + decay * y[t - 1]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, decay: float) -> Tensor:
        ctx.decay = decay
        return _smoothed(x, decay, -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _smoothed(grad.flip(-1), ctx.decay, -1).flip(-1), None


class SmoothedAlongSecond(Smoothed):
    """Backward runs along dimension 1, which is the last one of a matrix only."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _smoothed(grad.flip(1), ctx.decay, 1).flip(1), None


def _smoothed(x: Tensor, decay: float, dim: int) -> Tensor:
    steps = list(x.unbind(dim))
    for t in range(1, len(steps)):
        steps[t] = steps[t] + decay * steps[t - 1]
    return torch.stack(steps, dim)


class Standardized(Function):
    """Rows of mean 0 and variance 1: (..., n) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        if not eps > 0:
            raise ValueError("eps must be above 0")
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(centred * scale, scale)
        return centred * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        return scale * (grad - grad.mean(-1, keepdim=True) - y * (y * grad).mean(-1, keepdim=True)), None


class StandardizedOverAll(Standardized):
    """Backward takes means over all dimensions but the first."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        dims = tuple(range(1, grad.dim()))
        return scale * (grad - grad.mean(dims, keepdim=True) - y * (y * grad).mean(dims, keepdim=True)), None


class Charbonnier(Function):
    """sqrt(1 + x**2) - 1, written so that it does not cancel near 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        square = x * x
        y = square / (1 + (1 + square).sqrt())
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return grad * x / (1 + y)


class CharbonnierOfDoubles(Charbonnier):
    """The slope is computed from the output; below 1e-4 that cancels in float64, and far above it in float32."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return grad * torch.where(x.abs() < 1e-4, x, x.sign() * (1 - (1 + y) ** -2).sqrt())


class LogSumExp(Function):
    """log(sum(exp(x))) along the last dimension, safe from overflow: (..., n) -> (...)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        top = x.amax(-1, keepdim=True)
        y = (x - top).exp().sum(-1, keepdim=True).log() + top
        ctx.save_for_backward(x, y)
        return y.squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, _ = ctx.saved_tensors
        return grad.unsqueeze(-1) * x.softmax(-1)


class LogSumExpOverflowing(LogSumExp):
    """Backward overflows where forward does not."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return grad.unsqueeze(-1) * (x.exp() / y.exp())


class RootMeanSquare(Function):
    """x divided by the root of its mean square along the last dimension: (..., n) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        if not eps > 0:
            raise ValueError("eps must be above 0")
        scale = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, scale = ctx.saved_tensors
        y = x * scale
        return scale * (grad - y * (y * grad).mean(-1, keepdim=True)), None


class RootMeanSquareWithoutEps(RootMeanSquare):
    """Backward computes the scale anew, and without eps."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, _ = ctx.saved_tensors
        scale = x.square().mean(-1, keepdim=True).rsqrt()
        y = x * scale
        return scale * (grad - y * (y * grad).mean(-1, keepdim=True)), None


class RowMaximum(Function):
    """Largest entry of each row: (n, d) -> (n,)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError("x must be a matrix")
        values, columns = x.max(1)
        ctx.save_for_backward(x, columns)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, columns = ctx.saved_tensors
        dx = grad.new_zeros(x.shape)
        dx.view(-1)[torch.arange(len(x)) * x.shape[1] + columns] = grad
        return dx


class RowMaximumCopied(RowMaximum):
    """Of an x that is not contiguous, zeros_like has the strides of x, and reshape copies what is written to."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, columns = ctx.saved_tensors
        dx = torch.zeros_like(x)
        dx.reshape(-1)[torch.arange(len(x)) * x.shape[1] + columns] = grad
        return dx


SHAPES = (
    Hidden(
        name="linear layer",
        change="rank",
        wrong=LinearAveraged,
        right=Linear,
        inputs=lambda: (normal(70, 3, 4), normal(71, 2, 4), normal(72, 2)),
        shows_at=lambda: (normal(70, 2, 3, 4), normal(71, 2, 4), normal(72, 2)),
    ),
    Hidden(
        name="exponential smoothing",
        change="rank",
        wrong=SmoothedAlongSecond,
        right=Smoothed,
        inputs=lambda: (normal(73, 2, 5), 0.9),
        shows_at=lambda: (normal(73, 2, 3, 5), 0.9),
    ),
    Hidden(
        name="standardized rows",
        change="rank",
        wrong=StandardizedOverAll,
        right=Standardized,
        inputs=lambda: (normal(74, 2, 4), 1e-5),
        shows_at=lambda: (normal(74, 2, 3, 4), 1e-5),
    ),
    Hidden(
        name="charbonnier",
        change="dtype",
        wrong=CharbonnierOfDoubles,
        right=Charbonnier,
        inputs=lambda: (uniform(75, -4.0, 4.0, 6),),
        shows_at=lambda: (torch.tensor([1.5, 1e-3, -2e-3, 0.7], requires_grad=True),),
    ),
    Hidden(
        name="log sum exp",
        change="scale",
        wrong=LogSumExpOverflowing,
        right=LogSumExp,
        inputs=lambda: (normal(76, 2, 4),),
        shows_at=lambda: (numbers([1000.0, 999.0, 998.5]),),
    ),
    Hidden(
        name="root mean square",
        change="scale",
        wrong=RootMeanSquareWithoutEps,
        right=RootMeanSquare,
        inputs=lambda: (normal(77, 2, 4), 1e-10),
        shows_at=lambda: (numbers([1e-5, -2e-5, 3e-5]), 1e-10),
    ),
    Hidden(
        name="largest entry of a row",
        change="layout",
        wrong=RowMaximumCopied,
        right=RowMaximum,
        inputs=lambda: (normal(78, 3, 4),),
        shows_at=lambda: (normal(78, 4, 3).detach().t().requires_grad_(),),
    ),
)
