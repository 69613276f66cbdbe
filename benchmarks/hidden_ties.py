"""Hidden mistakes that show at ties, at equal rows, or at rounded values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, numbers, uniform


class ScatterMax(Function):
    """Largest value of each group, 0 if it is empty: values (n,), group (n,) -> (count,)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, count: int) -> Tensor:
        if values.dim() != 1 or values.shape != group.shape:
            raise ValueError("values and group must be vectors of one length")
        largest = values.new_full((count,), -torch.inf).scatter_reduce(0, group, values, "amax")
        ctx.save_for_backward(values, group, largest)
        return largest.where(largest.isfinite(), 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        values, group, largest = ctx.saved_tensors
        n = len(values)
        place = torch.arange(n).where(values == largest[group], n)
        first = group.new_full((len(grad),), n).scatter_reduce(0, group, place, "amin")
        return (grad[group] * (first[group] == torch.arange(n))), None, None


class ScatterMaxAll(ScatterMax):
    """All values that tie for the largest take the whole gradient."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        values, group, largest = ctx.saved_tensors
        return grad[group] * (values == largest[group]), None, None


class TopSum(Function):
    """Sum of the k largest entries of each row: (..., n) -> (...)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
        if not 1 <= k <= x.shape[-1]:
            raise ValueError("k must be between 1 and the number of columns")
        values, indices = x.topk(k)
        ctx.save_for_backward(x, values, indices)
        return values.sum(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, values, indices = ctx.saved_tensors
        return torch.zeros_like(x).scatter_(-1, indices, grad.unsqueeze(-1).expand_as(values)), None


class TopSumByThreshold(TopSum):
    """Backward takes every entry that is not below the k-th largest."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, values, _ = ctx.saved_tensors
        return grad.unsqueeze(-1) * (x >= values[..., -1:]), None


class LaplaceKernel(Function):
    """exp(-|a_i - b_j| / width) of the rows of a (n, d) and b (m, d): (n, m)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, width: float) -> Tensor:
        if a.dim() != 2 or b.dim() != 2 or not width > 0:
            raise ValueError("a and b must be matrices, and width above 0")
        distance = torch.linalg.vector_norm(a.unsqueeze(1) - b, dim=-1)
        kernel = (-distance / width).exp()
        ctx.save_for_backward(a, b, distance, kernel)
        ctx.width = width
        return kernel

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b, distance, kernel = ctx.saved_tensors
        slope = -grad * kernel / (ctx.width * distance.where(distance > 0, 1))
        moved = slope.unsqueeze(-1) * (a.unsqueeze(1) - b)
        return moved.sum(1), -moved.sum(0), None


class LaplaceKernelDivided(LaplaceKernel):
    """Equal rows give 0 / 0."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b, distance, kernel = ctx.saved_tensors
        slope = -grad * kernel / (ctx.width * distance)
        moved = slope.unsqueeze(-1) * (a.unsqueeze(1) - b)
        return moved.sum(1), -moved.sum(0), None


class Interpolated(Function):
    """Linear interpolation in a table: table (n,), place (m,) -> (m,); the outer segments go on beyond the ends."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, place: Tensor) -> Tensor:
        if table.dim() != 1 or place.dim() != 1 or len(table) < 2:
            raise ValueError("table and place must be vectors, the table of at least 2 numbers")
        low = place.floor().long().clamp(0, len(table) - 2)
        share = place - low
        ctx.save_for_backward(table, place, low, share)
        return table[low] * (1 - share) + table[low + 1] * share

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        table, _, low, share = ctx.saved_tensors
        return _table_vjp(grad, table, low, share), grad * (table[low + 1] - table[low])


class InterpolatedCeil(Interpolated):
    """Backward takes the neighbours floor(place) and ceil(place), which are one at a whole number."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        table, place, low, share = ctx.saved_tensors
        left = place.floor().long().clamp(0, len(table) - 2)
        right = place.ceil().long().clamp(1, len(table) - 1)
        return _table_vjp(grad, table, low, share), grad * (table[right] - table[left])


def _table_vjp(grad: Tensor, table: Tensor, low: Tensor, share: Tensor) -> Tensor:
    return torch.zeros_like(table).index_add_(0, low, grad * (1 - share)).index_add_(0, low + 1, grad * share)


class Sorted(Function):
    """Entries of a vector in ascending order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if x.dim() != 1:
            raise ValueError("x must be a vector")
        y, order = x.sort()
        ctx.save_for_backward(x, y, order)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        _, _, order = ctx.saved_tensors
        return torch.zeros_like(grad).index_copy_(0, order, grad)


class SortedBySearch(Sorted):
    """Backward looks every entry up by its value; equal entries find one place."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y, _ = ctx.saved_tensors
        return grad[torch.searchsorted(y, x)]


TIES = (
    Hidden(
        name="scatter max",
        change="ties",
        wrong=ScatterMaxAll,
        right=ScatterMax,
        inputs=lambda: (normal(50, 6), torch.tensor([0, 1, 0, 2, 1, 0]), 3),
        shows_at=lambda: (numbers(0.5, 0.25, 0.5, -1.0, 0.75, 0.0), torch.tensor([0, 1, 0, 2, 1, 0]), 3),
    ),
    Hidden(
        name="sum of the largest",
        change="ties",
        wrong=TopSumByThreshold,
        right=TopSum,
        inputs=lambda: (normal(51, 2, 5), 2),
        shows_at=lambda: (numbers([3.0, 1.0, 2.0, 2.0, 0.0]), 2),
    ),
    Hidden(
        name="laplace kernel",
        change="ties",
        wrong=LaplaceKernelDivided,
        right=LaplaceKernel,
        inputs=lambda: (normal(52, 3, 2), normal(53, 2, 2), 1.0),
        shows_at=lambda: (numbers([0.5, 1.0], [2.0, -1.0]), numbers([0.5, 1.0], [0.0, 0.0]), 1.0),
    ),
    Hidden(
        name="interpolation in a table",
        change="ties",
        wrong=InterpolatedCeil,
        right=Interpolated,
        inputs=lambda: (numbers(0.1, 0.5, 1.3, 1.6, 2.5), uniform(55, 0.0, 4.0, 4)),
        shows_at=lambda: (numbers(0.1, 0.5, 1.3, 1.6, 2.5), numbers(0.4, 2.0, 3.3)),
    ),
    Hidden(
        name="sort",
        change="ties",
        wrong=SortedBySearch,
        right=Sorted,
        inputs=lambda: (normal(56, 5),),
        shows_at=lambda: (numbers(2.0, 0.5, 2.0, 1.0),),
    ),
)
