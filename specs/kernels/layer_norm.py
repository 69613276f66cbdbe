"""Layer norm with weight and bias.

The gradients by weight and bias are sums over all rows. They are reduced in two stages: each program sums the rows of
its group, then a second kernel sums the partial sums of all programs.
"""

import torch
import triton
import triton.language as tl
from blocks import block_of, warps_of
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

_GROUPS = 4  # programs of the first stage: a GPU wants one or two per multiprocessor
_TILE = 64  # columns per program of the second stage
_PARTIALS = 16  # partial sums that a program of the second stage loads at once


class LayerNorm(torch.autograd.Function):
    """weight * (x - mean) / sqrt(variance + eps) + bias along the rows of a matrix."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        y, mean, rstd = layer_norm_forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        dx, weight_sums, bias_sums = layer_norm_backward(grad.contiguous(), *ctx.saved_tensors)
        dtype = dx.dtype
        return dx, sum_of_partials(weight_sums, dtype), sum_of_partials(bias_sums, dtype), None


def layer_norm_forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, and the mean and 1 / standard deviation of each row in float32."""
    rows, columns = x.shape
    y = torch.empty_like(x)
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    block = block_of(columns)
    _forward[(rows,)](x, weight, bias, y, mean, rstd, columns, eps, BLOCK=block, num_warps=warps_of(block))
    return y, mean, rstd


def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    mean: Tensor,
    rstd: Tensor,
    *,
    rows_per_group: int | None = None,
    accumulator: tl.dtype = tl.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient by x, and the partial sums by weight and bias, of shape (groups, columns).

    Each group sums `rows_per_group` rows in the dtype `accumulator`.
    """
    rows, columns = x.shape
    dx = torch.empty_like(x)
    weight_sums = torch.empty(_GROUPS, columns, dtype=torch.float32, device=x.device)
    bias_sums = torch.empty_like(weight_sums)
    block = block_of(columns)
    _backward[(_GROUPS,)](
        grad,
        x,
        weight,
        mean,
        rstd,
        dx,
        weight_sums,
        bias_sums,
        rows,
        columns,
        triton.cdiv(rows, _GROUPS) if rows_per_group is None else rows_per_group,
        ACCUMULATOR=accumulator,
        BLOCK=block,
        num_warps=warps_of(block),
    )
    return dx, weight_sums, bias_sums


def sum_of_partials(partials: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum over groups of partial sums of shape (groups, columns)."""
    groups, columns = partials.shape
    total = torch.empty(columns, dtype=dtype, device=partials.device)
    _sum_groups[(triton.cdiv(columns, _TILE),)](partials, total, groups, columns, PARTIALS=_PARTIALS, TILE=_TILE)
    return total


@triton.jit
def _forward(x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    y = centred * rstd * weight + bias
    tl.store(y_ptr + row * columns + column, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def _backward(
    grad_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    weight_sums_ptr,
    bias_sums_ptr,
    rows,
    columns,
    rows_per_group,
    ACCUMULATOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    group = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    weight_sum = tl.zeros([BLOCK], dtype=ACCUMULATOR)
    bias_sum = tl.zeros([BLOCK], dtype=ACCUMULATOR)
    first = group * rows_per_group
    for row in range(first, tl.minimum(first + rows_per_group, rows)):
        start = tl.cast(row, tl.int64) * columns
        x = tl.load(x_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row)
        rstd = tl.load(rstd_ptr + row)
        normed = tl.where(inside, (x - mean) * rstd, 0.0)
        slope = weight * grad
        dx = rstd * (slope - tl.sum(slope, axis=0) / columns - normed * (tl.sum(slope * normed, axis=0) / columns))
        tl.store(dx_ptr + start + column, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        weight_sum += (grad * normed).to(ACCUMULATOR)
        bias_sum += grad.to(ACCUMULATOR)
    place = tl.cast(group, tl.int64) * columns + column
    tl.store(weight_sums_ptr + place, weight_sum.to(tl.float32), mask=inside)
    tl.store(bias_sums_ptr + place, bias_sum.to(tl.float32), mask=inside)


@triton.jit
def _sum_groups(partials_ptr, total_ptr, groups, columns, PARTIALS: tl.constexpr, TILE: tl.constexpr):
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = column < columns
    total = tl.zeros([TILE], dtype=tl.float32)
    for first in range(0, groups, PARTIALS):
        group = first + tl.arange(0, PARTIALS)
        place = group[:, None].to(tl.int64) * columns + column[None, :]
        mask = (group[:, None] < groups) & inside[None, :]
        total += tl.sum(tl.load(partials_ptr + place, mask=mask, other=0.0), axis=0)
    tl.store(total_ptr + column, total.to(total_ptr.dtype.element_ty), mask=inside)
