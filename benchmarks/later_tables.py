"""More hidden mistakes: writing to caches, sparse products, selections and running sums."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, numbers

_BLOCK = 32  # places of a block of RunningLogSumExp


class CacheUpdate(Function):
    """Cache (s, d) with rows (n, d) written at slots (n,) in order; a row with slot -1 is padding: (s, d)."""

    @staticmethod
    def forward(ctx: Any, cache: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
        if cache.dim() != 2 or rows.dim() != 2 or cache.shape[1] != rows.shape[1] or slots.shape != rows.shape[:1]:
            raise ValueError("cache must be (s, d), rows (n, d), slots (n,)")
        if bool(((slots < -1) | (slots >= len(cache))).any()):
            raise ValueError("slots must be -1 or rows of the cache")
        updated = cache.clone()
        writer = slots.new_full((len(cache),), -1)
        for i, slot in enumerate(slots.tolist()):
            if slot >= 0:
                updated[slot] = rows[i]
                writer[slot] = i
        ctx.save_for_backward(slots, writer)
        return updated

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        slots, writer = ctx.saved_tensors
        written = writer >= 0
        of_rows = grad.new_zeros(len(slots), grad.shape[1])
        of_rows[writer[written]] = grad[written]
        return grad.masked_fill(written.unsqueeze(1), 0), of_rows, None


class CacheUpdatePadding(CacheUpdate):
    """Padding takes the gradient of the last row of the cache, and overwritten rows that of their slot."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        slots, writer = ctx.saved_tensors
        return grad.masked_fill((writer >= 0).unsqueeze(1), 0), grad[slots], None


class SparseProduct(Function):
    """Product of a sparse matrix with x (m, d); values (k,) at places (2, k), which add up if equal: (size, d)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, x: Tensor, places: Tensor, size: int) -> Tensor:
        if x.dim() != 2 or values.dim() != 1 or places.shape != (2, len(values)):
            raise ValueError("values must be (k,), x (m, d), places (2, k)")
        row, column = places
        if bool(((places < 0) | (places >= torch.tensor([[size], [len(x)]]))).any()):
            raise ValueError("places must be within size rows and m columns")
        ctx.save_for_backward(values, x, places)
        ctx.size = size
        return x.new_zeros(size, x.shape[1]).index_add_(0, row, values.unsqueeze(1) * x.index_select(0, column))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        values, x, (row, column) = ctx.saved_tensors
        of_x = torch.zeros_like(x).index_add_(0, column, values.unsqueeze(1) * grad[row])
        return (grad[row] * x[column]).sum(1), of_x, None, None


class SparseProductCoalesced(SparseProduct):
    """The gradient of x is taken with a dense matrix that keeps one of several values at a place."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        values, x, (row, column) = ctx.saved_tensors
        dense = x.new_zeros(ctx.size, len(x))
        dense[row, column] = values
        return (grad[row] * x[column]).sum(1), dense.mT @ grad, None, None


class Sparsemax(Function):
    """Nearest point of the probability simplex along the last dimension: (..., n) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if not x.dim() or not x.shape[-1]:
            raise ValueError("x must have a last dimension that is not empty")
        ordered = x.sort(-1, descending=True).values
        excess = ordered.cumsum(-1) - 1
        rank = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        count = (rank * ordered >= excess).sum(-1, keepdim=True)
        y = (x - excess.gather(-1, count - 1) / count).relu()
        ctx.save_for_backward(y, count)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, _ = ctx.saved_tensors
        support = y > 0
        mean = (grad * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True)
        return (grad - mean) * support


class SparsemaxCounted(Sparsemax):
    """The mean over the support divides by forward's count, which includes entries at the threshold."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, count = ctx.saved_tensors
        support = y > 0
        return (grad - (grad * support).sum(-1, keepdim=True) / count) * support


class RunningLogSumExp(Function):
    """log of the running sum of exp(x) along the last dimension, in blocks: (..., n) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if not x.dim() or not x.shape[-1]:
            raise ValueError("x must have a last dimension that is not empty")
        blocks = [block.logcumsumexp(-1) for block in x.split(_BLOCK, -1)]
        for i in range(1, len(blocks)):
            blocks[i] = torch.logaddexp(blocks[i], blocks[i - 1][..., -1:])
        y = torch.cat(blocks, -1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        parts = _parts(grad, x, y)
        later = torch.zeros_like(grad[..., :1])  # sum of grad * exp(end - y) over later blocks
        slopes: list[Tensor] = []
        for i in reversed(range(len(parts))):
            of_block, x_block, y_block = parts[i]
            end = y_block[..., -1:]
            slopes.insert(0, _block_vjp(of_block, x_block, y_block) + later * (x_block - end).exp())
            if i:
                before = parts[i - 1][2][..., -1:]
                later = later * (before - end).exp() + (of_block * (before - y_block).exp()).sum(-1, keepdim=True)
        return torch.cat(slopes, -1)


class RunningLogSumExpPerBlock(RunningLogSumExp):
    """Backward does not carry the gradient of later blocks over."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return torch.cat([_block_vjp(*part) for part in _parts(grad, x, y)], -1)


def _parts(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    return list(zip(*(tensor.split(_BLOCK, -1) for tensor in tensors), strict=True))


def _block_vjp(grad: Tensor, x: Tensor, y: Tensor) -> Tensor:
    n = x.shape[-1]
    reached = torch.ones(n, n, dtype=torch.bool).triu()
    share = (x.unsqueeze(-1) - y.unsqueeze(-2)).masked_fill(~reached, -torch.inf).exp()
    return (share @ grad.unsqueeze(-1)).squeeze(-1)


LATER_TABLES = (
    Hidden(
        name="cache update",
        change="indices",
        wrong=CacheUpdatePadding,
        right=CacheUpdate,
        inputs=lambda: (normal(120, 5, 2), normal(121, 3, 2), torch.tensor([2, 0, 4])),
        shows_at=lambda: (normal(120, 5, 2), normal(121, 3, 2), torch.tensor([2, 0, -1])),
    ),
    Hidden(
        name="sparse product",
        change="indices",
        wrong=SparseProductCoalesced,
        right=SparseProduct,
        inputs=lambda: (normal(122, 4), normal(123, 3, 2), torch.tensor([[0, 0, 1, 2], [0, 2, 1, 0]]), 3),
        shows_at=lambda: (normal(122, 4), normal(123, 3, 2), torch.tensor([[0, 0, 1, 0], [0, 2, 1, 0]]), 3),
    ),
    Hidden(
        name="sparsemax",
        change="ties",
        wrong=SparsemaxCounted,
        right=Sparsemax,
        inputs=lambda: (normal(124, 2, 4),),
        shows_at=lambda: (numbers([2.0, 1.0, 0.0]),),
    ),
    Hidden(
        name="running log sum exp",
        change="sizes",
        wrong=RunningLogSumExpPerBlock,
        right=RunningLogSumExp,
        inputs=lambda: (normal(125, 2, 6),),
        shows_at=lambda: (normal(125, 33),),
    ),
)
