"""Hidden mistakes of losses, scores and activations that show at other arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import one_hot

from benchmarks.hidden_subject import Hidden, normal, uniform


class PoissonLoss(Function):
    """Negative log likelihood exp(x) - target * x, reduced by "none", "mean" or "sum"."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor, reduction: str) -> Tensor:
        if x.shape != target.shape:
            raise ValueError("x and target must have one shape")
        ctx.save_for_backward(x, target)
        ctx.reduction = reduction
        losses = x.exp() - target * x
        if reduction == "none":
            return losses
        if reduction not in ("mean", "sum"):
            raise ValueError(f"unknown reduction {reduction}")
        return losses.mean() if reduction == "mean" else losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, target = ctx.saved_tensors
        scale = grad / x.numel() if ctx.reduction == "mean" else grad
        return scale * (x.exp() - target), -scale * x, None


class PoissonLossAlwaysMean(PoissonLoss):
    """Every reduction is differentiated as a mean."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, target = ctx.saved_tensors
        scale = grad if ctx.reduction == "none" else grad / x.numel()
        return scale * (x.exp() - target), -scale * x, None


class SmoothedCrossEntropy(Function):
    """Mean cross entropy with label smoothing: logits (n, c), target (n,) -> ()."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
        if logits.dim() != 2 or target.shape != logits.shape[:1] or not 0 <= smoothing <= 1:
            raise ValueError("logits must be (n, c), target (n,), and smoothing between 0 and 1")
        hit = one_hot(target, logits.shape[1]).to(logits.dtype)
        ctx.save_for_backward(logits, hit)
        ctx.smoothing = smoothing
        labels = (1 - smoothing) * hit + smoothing / logits.shape[1]
        return -(labels * logits.log_softmax(-1)).sum() / len(logits)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, hit = ctx.saved_tensors
        labels = (1 - ctx.smoothing) * hit + ctx.smoothing / logits.shape[1]
        return grad * (logits.softmax(-1) - labels) / len(logits), None, None


class SmoothedCrossEntropyHard(SmoothedCrossEntropy):
    """Backward forgets the share of the label that is spread over all classes."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, hit = ctx.saved_tensors
        labels = (1 - ctx.smoothing) * hit
        return grad * (logits.softmax(-1) - labels) / len(logits), None, None


class AttentionScores(Function):
    """Scaled scores of queries (n, d) and keys (m, d), capped softly at `softcap` if it is given: (n, m)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, softcap: float | None) -> Tensor:
        if query.dim() < 2 or key.dim() < 2:
            raise ValueError("query must be (n, d), key (m, d)")
        if softcap is not None and not (isinstance(softcap, (int, float)) and softcap > 0):
            raise ValueError("softcap must be a number above 0, or None")
        ctx.save_for_backward(query, key)
        ctx.softcap = softcap
        scores = query @ key.mT * query.shape[-1] ** -0.5
        return scores if softcap is None else softcap * torch.tanh(scores / softcap)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        if ctx.softcap is not None:
            grad = grad * (query @ key.mT * scale / ctx.softcap).cosh().reciprocal().square()
        return grad @ key * scale, grad.mT @ query * scale, None


class AttentionScoresUncapped(AttentionScores):
    """Backward knows of no cap."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        return grad @ key * scale, grad.mT @ query * scale, None


class Softmax(Function):
    """Softmax along a dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        y = x.softmax(dim)
        ctx.save_for_backward(y)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return y * (grad - (y * grad).sum(ctx.dim, keepdim=True)), None


class SoftmaxLast(Softmax):
    """Backward sums over the last dimension, whichever was asked for."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return y * (grad - (y * grad).sum(-1, keepdim=True)), None


class Clipped(Function):
    """Values clipped to [low, high]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        if not low < high:
            raise ValueError("low must be below high")
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return grad * ((x >= ctx.low) & (x <= ctx.high)), None, None


class ClippedSymmetric(Clipped):
    """Backward takes -high for the lower bound."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= ctx.high), None, None


ARGUMENTS = (
    Hidden(
        name="poisson loss",
        change="arguments",
        wrong=PoissonLossAlwaysMean,
        right=PoissonLoss,
        inputs=lambda: (normal(10, 4), uniform(11, 0.0, 3.0, 4).detach(), "mean"),
        shows_at=lambda: (normal(10, 4), uniform(11, 0.0, 3.0, 4).detach(), "sum"),
    ),
    Hidden(
        name="label smoothing",
        change="arguments",
        wrong=SmoothedCrossEntropyHard,
        right=SmoothedCrossEntropy,
        inputs=lambda: (normal(12, 3, 4), torch.tensor([2, 0, 3]), 0.0),
        shows_at=lambda: (normal(12, 3, 4), torch.tensor([2, 0, 3]), 0.1),
        declared={"ranges": {"smoothing": (0.0, 1.0)}, "indices": {"target": {"below": 4}}},
    ),
    Hidden(
        name="attention scores",
        change="arguments",
        wrong=AttentionScoresUncapped,
        right=AttentionScores,
        inputs=lambda: (normal(13, 3, 4), normal(14, 2, 4), None),
        shows_at=lambda: (normal(13, 3, 4), normal(14, 2, 4), 2.0),
    ),
    Hidden(
        name="softmax along a dimension",
        change="arguments",
        wrong=SoftmaxLast,
        right=Softmax,
        inputs=lambda: (normal(15, 3, 4), 1),
        shows_at=lambda: (normal(15, 3, 4), 0),
    ),
    Hidden(
        name="clip",
        change="arguments",
        wrong=ClippedSymmetric,
        right=Clipped,
        inputs=lambda: (normal(16, 2, 4), -1.0, 1.0),
        shows_at=lambda: (normal(16, 2, 4), 0.0, 1.0),
    ),
)
