"""More hidden mistakes: losses of classes, sequences and curves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import logsigmoid, pad

from benchmarks.hidden_subject import Hidden, normal, numbers


class FocalLoss(Function):
    """Focal losses of logits and targets 0 or 1: (...) -> (...).

    Targets 1 are weighted with alpha, others with 1 - alpha; a negative alpha means no weights.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, alpha: float, gamma: float) -> Tensor:
        if target.shape != logits.shape or bool(((target != 0) & (target != 1)).any()):
            raise ValueError("target must have the shape of logits and be 0 or 1")
        if alpha > 1 or gamma < 0:
            raise ValueError("alpha must be at most 1, gamma at least 0")
        ctx.save_for_backward(logits, target)
        ctx.alpha, ctx.gamma = alpha, gamma
        z = logits * (2 * target - 1)
        losses = -((-z).sigmoid() ** gamma) * logsigmoid(z)
        return losses * _class_weights(target, alpha) if alpha >= 0 else losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logits, target = ctx.saved_tensors
        slope = _focal_slope(logits, target, ctx.gamma)
        if ctx.alpha >= 0:
            slope = slope * _class_weights(target, ctx.alpha)
        return grad * slope, None, None, None


class FocalLossWeighted(FocalLoss):
    """Backward always weights the classes."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logits, target = ctx.saved_tensors
        slope = _focal_slope(logits, target, ctx.gamma) * _class_weights(target, ctx.alpha)
        return grad * slope, None, None, None


def _class_weights(target: Tensor, alpha: float) -> Tensor:
    return alpha * target + (1 - alpha) * (1 - target)


def _focal_slope(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
    sign = 2 * target - 1
    z = logits * sign
    p, rest = z.sigmoid(), (-z).sigmoid()
    return sign * rest**gamma * (gamma * p * logsigmoid(z) - rest)


class TemporalClassification(Function):
    """Negative log likelihood of a target (n,) under CTC with blank 0: logits (t, c) -> ()."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        if logits.dim() != 2 or target.dim() != 1 or bool(((target < 1) | (target >= logits.shape[1])).any()):
            raise ValueError("logits must be (t, c), target (n,) of labels 1 to c - 1")
        if len(target) + int((target.diff() == 0).sum()) > len(logits) or not len(logits):
            raise ValueError("target does not fit into the time steps")
        labels = target.new_zeros(2 * len(target) + 1)
        labels[1::2] = target
        emitted = logits.log_softmax(-1)[:, labels]
        alphas = _alphas(emitted, _may_skip(labels))
        total = alphas[-1, -2:].logsumexp(0)
        ctx.save_for_backward(logits, labels, emitted, alphas, total)
        return -total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, labels, emitted, alphas, total = ctx.saved_tensors
        skip = _may_skip(labels.flip(0))
        betas = _alphas(emitted.flip(0, 1), skip).flip(0, 1)
        return grad * _ctc_slope(logits, labels, alphas + betas - emitted - total), None


class TemporalClassificationRepeats(TemporalClassification):
    """The recursion from the end lets a label follow itself without a blank between."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, labels, emitted, alphas, total = ctx.saved_tensors
        skip = labels.flip(0) != 0
        betas = _alphas(emitted.flip(0, 1), skip).flip(0, 1)
        return grad * _ctc_slope(logits, labels, alphas + betas - emitted - total), None


def _may_skip(labels: Tensor) -> Tensor:
    two_before = pad(labels, (2, 0))[: len(labels)]
    return (labels != 0) & (labels != two_before)


def _alphas(emitted: Tensor, skip: Tensor) -> Tensor:
    n = emitted.shape[1]
    rows = [emitted[0].where(torch.arange(n) < 2, -torch.inf)]
    for row in emitted[1:]:
        from_before = pad(rows[-1], (1, 0), value=-torch.inf)[:n]
        from_label = pad(rows[-1], (2, 0), value=-torch.inf)[:n].where(skip, -torch.inf)
        rows.append(row + torch.stack([rows[-1], from_before, from_label]).logsumexp(0))
    return torch.stack(rows)


def _ctc_slope(logits: Tensor, labels: Tensor, log_occupancy: Tensor) -> Tensor:
    return logits.softmax(-1).index_add(1, labels, log_occupancy.exp(), alpha=-1)


class SoftLabelLoss(Function):
    """Cross entropy with label distributions, divided by the batch size: logits and target (b, ..., c) -> ()."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        if logits.dim() < 2 or logits.shape != target.shape or not len(logits):
            raise ValueError("logits and target must both be (b, ..., c)")
        ctx.save_for_backward(logits, target)
        return -(target * logits.log_softmax(-1)).sum() / len(logits)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        logits, target = ctx.saved_tensors
        return _soft_label_vjp(grad / len(logits), logits, target)


class SoftLabelLossPerRow(SoftLabelLoss):
    """Backward divides by the number of distributions."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        logits, target = ctx.saved_tensors
        return _soft_label_vjp(grad * logits.shape[-1] / logits.numel(), logits, target)


def _soft_label_vjp(grad: Tensor, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    of_logits = grad * (logits.softmax(-1) * target.sum(-1, keepdim=True) - target)
    return of_logits, -grad * logits.log_softmax(-1)


class WarpedDistance(Function):
    """Dynamic time warping: smallest sum of squared differences along a path; (n,), (m,) -> ()."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        if a.dim() != 1 or b.dim() != 1 or not a.numel() or not b.numel():
            raise ValueError("a and b must be vectors, and not empty")
        cost = (a.unsqueeze(1) - b).square()
        sums = a.new_full((len(a) + 1, len(b) + 1), torch.inf)
        sums[0, 0] = 0
        for i in range(len(a)):
            for j in range(len(b)):
                sums[i + 1, j + 1] = cost[i, j] + torch.stack(_before(sums, i, j)).min()
        ctx.save_for_backward(a, b, sums)
        return sums[-1, -1].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b, sums = ctx.saved_tensors
        visits = a.new_zeros(len(a), len(b))
        i, j = len(a) - 1, len(b) - 1
        visits[i, j] = 1
        while i or j:
            move = int(torch.stack(_before(sums, i, j)).argmin())
            i, j = i - (move != 2), j - (move != 1)
            visits[i, j] = 1
        return _warped_vjp(grad, a, b, visits)


class WarpedDistanceAllPaths(WarpedDistance):
    """Every predecessor that ties for the smallest sum is followed."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b, sums = ctx.saved_tensors
        visits = a.new_zeros(len(a) + 1, len(b) + 1)
        visits[-1, -1] = 1
        for i in reversed(range(len(a))):
            for j in reversed(range(len(b))):
                before = torch.stack(_before(sums, i, j))
                share = (before == before.min()) * visits[i + 1, j + 1]
                visits[i, j] += share[0]
                visits[i, j + 1] += share[1]
                visits[i + 1, j] += share[2]
        return _warped_vjp(grad, a, b, visits[1:, 1:])


def _before(sums: Tensor, i: int, j: int) -> list[Tensor]:
    return [sums[i, j], sums[i, j + 1], sums[i + 1, j]]


def _warped_vjp(grad: Tensor, a: Tensor, b: Tensor, visits: Tensor) -> tuple[Tensor, Tensor]:
    slope = 2 * grad * visits * (a.unsqueeze(1) - b)
    return slope.sum(1), -slope.sum(0)


LATER_LOSSES = (
    Hidden(
        name="focal loss",
        change="arguments",
        wrong=FocalLossWeighted,
        right=FocalLoss,
        inputs=lambda: (normal(110, 4), torch.tensor([1, 0, 0, 1]), 0.25, 2.0),
        shows_at=lambda: (normal(110, 4), torch.tensor([1, 0, 0, 1]), -1, 2.0),
    ),
    Hidden(
        name="temporal classification",
        change="indices",
        wrong=TemporalClassificationRepeats,
        right=TemporalClassification,
        inputs=lambda: (normal(111, 5, 4), torch.tensor([2, 1, 3])),
        shows_at=lambda: (normal(111, 5, 4), torch.tensor([2, 2, 3])),
    ),
    Hidden(
        name="soft label loss",
        change="rank",
        wrong=SoftLabelLossPerRow,
        right=SoftLabelLoss,
        inputs=lambda: (normal(112, 2, 3), normal(113, 2, 3).detach().softmax(-1).requires_grad_()),
        shows_at=lambda: (normal(112, 2, 2, 3), normal(113, 2, 2, 3).detach().softmax(-1).requires_grad_()),
    ),
    Hidden(
        name="dynamic time warping",
        change="ties",
        wrong=WarpedDistanceAllPaths,
        right=WarpedDistance,
        inputs=lambda: (normal(114, 3), normal(115, 4)),
        shows_at=lambda: (numbers(1.0, 1.0, -2.0), numbers(0.0, 2.0, 1.0, 1.0)),
    ),
)
