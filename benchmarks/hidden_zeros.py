"""Hidden mistakes that show at exact zeros."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, numbers, uniform


class CumulativeProduct(Function):
    """Cumulative product along the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.cumprod(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, _ = ctx.saved_tensors
        n = x.shape[-1]
        others = x.unsqueeze(-2).repeat(*[1] * (x.dim() - 1), n, 1)  # row j: x with entry j replaced by 1
        others.diagonal(dim1=-2, dim2=-1).fill_(1)
        return (others.cumprod(-1) * grad.unsqueeze(-2)).triu().sum(-1)


class CumulativeProductDivided(CumulativeProduct):
    """Backward divides by x."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return (grad * y).flip(-1).cumsum(-1).flip(-1) / x


class RowNorm(Function):
    """Euclidean norm of the rows: (..., n) -> (...)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.linalg.vector_norm(x, dim=-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return x * (grad / y.where(y > 0, 1)).unsqueeze(-1)


class RowNormDivided(RowNorm):
    """The gradient of a row of zeros is 0 / 0."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return x * (grad / y).unsqueeze(-1)


class XLogY(Function):
    """x * log(y), and 0 if x is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        if x.shape != y.shape:
            raise ValueError("x and y must have one shape")
        ctx.save_for_backward(x, y)
        return torch.where(x == 0, 0.0, x * y.log())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grad * y.log(), grad * x / y


class XLogYMasked(XLogY):
    """Backward is 0 wherever forward took its special value."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        grad = torch.where(x == 0, 0.0, grad)
        return grad * y.log(), grad * x / y


class MaskedMean(Function):
    """Mean of the tokens whose mask is not 0: x (b, t, d), mask (b, t) -> (b, d)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        if x.dim() != 3 or mask.shape != x.shape[:2]:
            raise ValueError("x must be (b, t, d), mask (b, t)")
        kept = (mask != 0).to(x.dtype).unsqueeze(-1)
        ctx.save_for_backward(kept)
        return (x * kept).sum(1) / kept.sum(1).clamp(min=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return kept * (grad / kept.sum(1).clamp(min=1)).unsqueeze(1), None


class MaskedMeanOfAll(MaskedMean):
    """Backward divides by the number of all tokens."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return kept * (grad / kept.shape[1]).unsqueeze(1), None


ZEROS = (
    Hidden(
        name="cumulative product",
        change="zeros",
        wrong=CumulativeProductDivided,
        right=CumulativeProduct,
        inputs=lambda: (normal(40, 2, 4),),
        shows_at=lambda: (numbers([0.7, 0.0, -1.2, 0.4]),),
    ),
    Hidden(
        name="row norm",
        change="zeros",
        wrong=RowNormDivided,
        right=RowNorm,
        inputs=lambda: (normal(41, 3, 3),),
        shows_at=lambda: (numbers([0.7, 0.1, -1.2], [0.0, 0.0, 0.0]),),
    ),
    Hidden(
        name="x log y",
        change="zeros",
        wrong=XLogYMasked,
        right=XLogY,
        inputs=lambda: (uniform(42, 0.1, 1.0, 5), uniform(43, 0.5, 2.0, 5)),
        shows_at=lambda: (numbers(0.4, 0.0, 0.8), uniform(43, 0.5, 2.0, 3)),
        declared={"ranges": {"y": (0.1, 10.0)}},
    ),
    Hidden(
        name="masked mean",
        change="zeros",
        wrong=MaskedMeanOfAll,
        right=MaskedMean,
        inputs=lambda: (normal(44, 2, 3, 2), torch.ones(2, 3, dtype=torch.float64)),
        shows_at=lambda: (normal(44, 2, 3, 2), torch.tensor([[1.0, 1, 0], [1, 1, 1]], dtype=torch.float64)),
    ),
)
