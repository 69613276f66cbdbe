"""Hidden mistakes beyond a constant that forward compares its input with."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, numbers, uniform

_MOST = math.log(1000 / 16)  # largest change of the logarithm of a width


class HardSwish(Function):
    """x * clamp(x + 3, 0, 6) / 6."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * (x + 3).clamp(0, 6) / 6

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        slope = torch.where(x < 3, (2 * x + 3) / 6, 1.0)
        return grad * torch.where(x > -3, slope, 0.0)


class HardSwishUnbounded(HardSwish):
    """Backward keeps the parabola above 3."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * torch.where(x > -3, (2 * x + 3) / 6, 0.0)


class HuberLoss(Function):
    """error**2 / 2 up to `delta`, linear beyond: x, target -> losses of their shape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor, delta: float) -> Tensor:
        if x.shape != target.shape or not delta > 0:
            raise ValueError("x and target must have one shape, and delta be above 0")
        error = x - target
        ctx.save_for_backward(error)
        ctx.delta = delta
        distance = error.abs()
        return torch.where(distance <= delta, error * error / 2, delta * (distance - delta / 2))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (error,) = ctx.saved_tensors
        slope = grad * error.clamp(-ctx.delta, ctx.delta)
        return slope, -slope, None


class HuberLossUnsigned(HuberLoss):
    """The linear part rises on both sides."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (error,) = ctx.saved_tensors
        slope = grad * torch.where(error.abs() <= ctx.delta, error, ctx.delta)
        return slope, -slope, None


class Logit(Function):
    """Log odds of probabilities that are clipped to [eps, 1 - eps]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        if not 0 < eps < 0.5:
            raise ValueError("eps must be between 0 and 0.5")
        p = x.clamp(eps, 1 - eps)
        ctx.save_for_backward(x, p)
        return torch.log(p / (1 - p))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, p = ctx.saved_tensors
        return torch.where(x == p, grad / (p * (1 - p)), 0.0), None


class LogitUnclipped(Logit):
    """Backward passes the gradient of clipped probabilities on."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        _, p = ctx.saved_tensors
        return grad / (p * (1 - p)), None


class DecodedBoxes(Function):
    """Boxes (n, 2) of centre and width moved by deltas (n, 2); the width grows by 62.5 at most."""

    @staticmethod
    def forward(ctx: Any, deltas: Tensor, boxes: Tensor) -> Tensor:
        if deltas.shape != boxes.shape or deltas.shape[-1] != 2:
            raise ValueError("deltas and boxes must be (n, 2)")
        centre, width = boxes.unbind(-1)
        scale = deltas[..., 1].clamp(max=_MOST).exp()
        ctx.save_for_backward(deltas, width, scale)
        return torch.stack([centre + deltas[..., 0] * width, width * scale], dim=-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        deltas, width, scale = ctx.saved_tensors
        of_scale = torch.where(deltas[..., 1] <= _MOST, grad[..., 1] * width * scale, 0.0)
        return torch.stack([grad[..., 0] * width, of_scale], dim=-1), _boxes_vjp(grad, deltas, scale)


class DecodedBoxesUnclamped(DecodedBoxes):
    """Backward forgets that the growth is limited."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        deltas, width, scale = ctx.saved_tensors
        of_scale = grad[..., 1] * width * scale
        return torch.stack([grad[..., 0] * width, of_scale], dim=-1), _boxes_vjp(grad, deltas, scale)


def _boxes_vjp(grad: Tensor, deltas: Tensor, scale: Tensor) -> Tensor:
    return torch.stack([grad[..., 0], grad[..., 0] * deltas[..., 0] + grad[..., 1] * scale], dim=-1)


class ArcCosine(Function):
    """Arc cosine that goes on as a straight line beyond `bound`, so that rounding above 1 gives no NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bound: float) -> Tensor:
        if not 0 < bound < 1:
            raise ValueError("bound must be between 0 and 1")
        inside = x.clamp(-bound, bound)
        ctx.save_for_backward(x)
        ctx.bound = bound
        return inside.acos() - (x - inside) / (1 - bound * bound) ** 0.5

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        inside = x.clamp(-ctx.bound, ctx.bound)
        return -grad * (1 - inside * inside).rsqrt(), None


class ArcCosineEverywhere(ArcCosine):
    """Backward is that of the arc cosine, also on the straight lines."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return -grad * (1 - x * x).rsqrt(), None


CONSTANTS = (
    Hidden(
        name="hard swish",
        change="constants",
        wrong=HardSwishUnbounded,
        right=HardSwish,
        inputs=lambda: (normal(30, 2, 4),),
        shows_at=lambda: (numbers(0.5, 3.5, -1.0, -4.0),),
    ),
    Hidden(
        name="huber loss",
        change="constants",
        wrong=HuberLossUnsigned,
        right=HuberLoss,
        inputs=lambda: (numbers(0.3, 1.7, -0.4, 2.9), numbers(0.1, 0.2, 0.3, 0.4).detach(), 1.0),
        shows_at=lambda: (numbers(0.3, 1.7, -2.4, 2.9), numbers(0.1, 0.2, 0.3, 0.4).detach(), 1.0),
    ),
    Hidden(
        name="logit",
        change="constants",
        wrong=LogitUnclipped,
        right=Logit,
        inputs=lambda: (uniform(31, 0.1, 0.9, 6), 1e-3),
        shows_at=lambda: (numbers(0.2, 1.0, 0.0), 1e-3),
    ),
    Hidden(
        name="decoded boxes",
        change="constants",
        wrong=DecodedBoxesUnclamped,
        right=DecodedBoxes,
        inputs=lambda: (normal(32, 3, 2), uniform(33, 1.0, 4.0, 3, 2)),
        shows_at=lambda: (numbers([0.1, 5.0], [0.2, -0.3]), uniform(33, 1.0, 4.0, 2, 2)),
    ),
    Hidden(
        name="arc cosine",
        change="constants",
        wrong=ArcCosineEverywhere,
        right=ArcCosine,
        inputs=lambda: (uniform(34, -0.9, 0.9, 5), 0.99),
        shows_at=lambda: (numbers(0.3, 0.995, -0.2), 0.99),
    ),
)
