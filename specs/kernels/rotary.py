"""Rotary position embedding: each pair of channels is turned by an angle that grows with the position."""

import torch
import triton
import triton.language as tl
from blocks import block_of
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


class Rotary(torch.autograd.Function):
    """Rotate channels (i, i + channels / 2) of x (batch, positions, heads, channels) by the angle (position, i).

    cos and sin have the shape (positions, channels / 2) and no gradient.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin, direction=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        return rotate(grad, *ctx.saved_tensors, direction=-1), None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor, direction: int) -> Tensor:
    """Return x turned by the angles, or by minus the angles if `direction` is -1."""
    x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    batch, positions, heads, channels = x.shape
    y = torch.empty_like(x)
    grid = (batch * positions, heads)
    _rotate[grid](
        x, cos, sin, y, positions, heads, channels // 2, DIRECTION=direction, BLOCK=block_of(channels // 2), num_warps=1
    )
    return y


@triton.jit
def _rotate(x_ptr, cos_ptr, sin_ptr, y_ptr, positions, heads, half, DIRECTION: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    start = (token * heads + tl.program_id(1)) * 2 * half
    channel = tl.arange(0, BLOCK)
    inside = channel < half
    angle = (token % positions) * half + channel
    cos = tl.load(cos_ptr + angle, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + angle, mask=inside, other=0.0).to(tl.float32) * DIRECTION
    first = tl.load(x_ptr + start + channel, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + start + half + channel, mask=inside, other=0.0).to(tl.float32)
    dtype = y_ptr.dtype.element_ty
    tl.store(y_ptr + start + channel, (first * cos - second * sin).to(dtype), mask=inside)
    tl.store(y_ptr + start + half + channel, (second * cos + first * sin).to(dtype), mask=inside)
