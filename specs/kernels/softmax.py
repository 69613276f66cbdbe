"""Softmax over the last dimension, one program per row."""

import torch
import triton
import triton.language as tl
from blocks import block_of, warps_of
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


class Softmax(torch.autograd.Function):
    """exp(x - max) / sum(exp(x - max)) along the rows of a matrix."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        y = softmax_forward(x.contiguous())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return softmax_backward(y, grad.contiguous())


def softmax_forward(x: Tensor, padding: float = float("-inf")) -> Tensor:
    """Return the softmax of the rows of `x`, of shape (rows, columns).

    The stride of `x` along a row must be 1. `padding` fills the block beyond the end of a row.
    """
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, columns = x.shape
    block = block_of(columns)
    _forward[(rows,)](x, y, x.stride(0), columns, PADDING=padding, BLOCK=block, num_warps=warps_of(block))
    return y


def softmax_backward(y: Tensor, grad: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the gradient by x, written into `out` if it is given. Every tensor is contiguous."""
    dx = torch.empty_like(y) if out is None else out
    rows, columns = y.shape
    block = block_of(columns)
    _backward[(rows,)](y, grad, dx, columns, BLOCK=block, num_warps=warps_of(block))
    return dx


@triton.jit
def _forward(x_ptr, y_ptr, x_stride, columns, PADDING: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=PADDING).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * columns + column, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(y_ptr, grad_ptr, dx_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    y = tl.load(y_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
    dx = y * (grad - tl.sum(y * grad, axis=0))
    tl.store(dx_ptr + start + column, dx.to(dx_ptr.dtype.element_ty), mask=inside)
