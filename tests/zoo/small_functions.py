"""Hand-written Functions, elementwise and other small ones, with a right backward."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional


class Swish(Function):
    """x·sigmoid(x) that saves only its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return g * s * (1 + x * (1 - s))


class Exp(Function):
    """exp that saves its output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


class Relu(Function):
    """relu with derivative zero at zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * (ctx.saved_tensors[0] > 0)


class Softmax(Function):
    """Softmax over the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        shifted = (x - x.amax(-1, keepdim=True)).exp()
        y = shifted / shifted.sum(-1, keepdim=True)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(-1, keepdim=True))


class Cumsum(Function):
    """Cumulative sum whose backward flips twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.cumsum(-1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.flip(-1).cumsum(-1).flip(-1)


class SquareInPlace(Function):
    """Square that overwrites its input and marks it dirty."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.clone())
        ctx.mark_dirty(x)
        return x.mul_(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g * ctx.saved_tensors[0]


class OnlyOnce(Function):
    """sin that drops its saved input after one backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x.detach()
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, ctx.x = ctx.x, None
        return g * x.cos()


class Newton(Function):
    """Square root by Newton steps to a residual of 1e-9, with the gradient of the exact root."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clone()
        for _ in range(50):
            if bool((y * y - x).abs().max() <= 1e-9):
                break
            y = (y + x / y) / 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g / (2 * ctx.saved_tensors[0])


class SafeNorm(Function):
    """Norm with gradient zero at zero, which lies between the one-sided derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.norm(dim=-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        safe = torch.where(y > 0, y, torch.ones_like(y))
        return g.unsqueeze(-1) * x / safe.unsqueeze(-1)


class ComplexScale(Function):
    """Complex product with torch's convention for complex gradients."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, c: Tensor) -> Tensor:
        ctx.save_for_backward(z, c)
        return z * c

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        z, c = ctx.saved_tensors
        return g * c.conj(), (g * z.conj()).sum()


class SinAndCos(Function):
    """Two outputs, one of which may have no cotangent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x.cos() - h * x.sin()


class GeluTanh(Function):
    """The tanh approximation of gelu with its explicit derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return functional.gelu(x, approximate="tanh")

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        c = math.sqrt(2 / math.pi)
        t = (c * (x + 0.044715 * x**3)).tanh()
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x))


class Mish(Function):
    """mish that recomputes intermediates in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * functional.softplus(x).tanh()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        t = functional.softplus(x).tanh()
        return g * (t + x * x.sigmoid() * (1 - t * t))


class BinaryFocal(Function):
    """Elementwise focal loss of logits; saves an intermediate, so its second derivative is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        s = (2 * y - 1) * x
        ctx.save_for_backward(s, y)
        return -((-s).sigmoid() ** 2) * functional.logsigmoid(s)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        s, y = ctx.saved_tensors
        q = (-s).sigmoid()
        slope = 2 * q * q * (1 - q) * functional.logsigmoid(s) - q**3
        return g * slope * (2 * y - 1), None


class FloatInside(Function):
    """softplus computed in float32, like a mixed-precision kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x.float().exp() + 1).log().double()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return (g.float() * ctx.saved_tensors[0].float().sigmoid()).double()


class Permute(Function):
    """Permutation of dimensions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.permute(2, 0, 1).contiguous()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.permute(1, 2, 0)


class BroadcastProduct(Function):
    """Product whose backward sums over the broadcast dimensions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return (g * y).sum_to_size(x.shape), (g * x).sum_to_size(y.shape)
