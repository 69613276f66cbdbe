"""Hidden mistakes that show at other indices: duplicates, another order, empty groups, a special value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal


class Embedding(Function):
    """Rows of a table times the root of their width: weight (v, d), ids (n,) -> (n, d)."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = weight.shape
        return weight.index_select(0, ids) * weight.shape[1] ** 0.5

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_add_(0, ids, grad * ctx.shape[1] ** 0.5), None


class EmbeddingLastWins(Embedding):
    """Of an id that occurs twice, only the last gradient is kept."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_copy_(0, ids, grad * ctx.shape[1] ** 0.5), None


class CrossEntropy(Function):
    """Mean cross entropy of the rows whose target is not ignored: logits (n, c), target (n,) -> ()."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
        if logits.dim() != 2 or target.shape != logits.shape[:1]:
            raise ValueError("logits must be (n, c), target (n,)")
        kept = target != ignore_index
        target = target.where(kept, 0).unsqueeze(1)
        ctx.save_for_backward(logits, target, kept)
        losses = -logits.log_softmax(-1).gather(1, target).squeeze(1)
        return (losses * kept).sum() / kept.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, target, kept = ctx.saved_tensors
        slope = logits.softmax(-1).scatter_add(1, target, -torch.ones_like(logits[:, :1]))
        return grad * slope * kept.unsqueeze(1) / kept.sum(), None, None


class CrossEntropyOfAll(CrossEntropy):
    """Backward divides by the number of all rows."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, target, kept = ctx.saved_tensors
        slope = logits.softmax(-1).scatter_add(1, target, -torch.ones_like(logits[:, :1]))
        return grad * slope * kept.unsqueeze(1) / len(logits), None, None


class SegmentMean(Function):
    """Mean of the rows of each segment, 0 if it is empty: x (n, d), segment (n,) -> (count, d)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, segment: Tensor, count: int) -> Tensor:
        sums = x.new_zeros(count, x.shape[1]).index_add_(0, segment, x)
        sizes = torch.bincount(segment, minlength=count)
        ctx.save_for_backward(segment, sizes)
        return sums / sizes.clamp(min=1).unsqueeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        segment, sizes = ctx.saved_tensors
        return (grad / sizes.clamp(min=1).unsqueeze(1)).index_select(0, segment), None, None


class SegmentMeanSorted(SegmentMean):
    """Backward repeats the gradient of each segment, as if segments came in order."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        _, sizes = ctx.saved_tensors
        return (grad / sizes.clamp(min=1).unsqueeze(1)).repeat_interleave(sizes, dim=0), None, None


class EmbeddingBag(Function):
    """Sum of the rows of each bag: weight (v, d), ids (n,), offsets (b,) of the bags' first ids -> (b, d)."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
        if int(offsets[0]) or int(offsets[-1]) > len(ids) or bool((offsets.diff() < 0).any()):
            raise ValueError("offsets must start with 0, not decrease, and not exceed the number of ids")
        ctx.save_for_backward(ids, offsets)
        ctx.shape = weight.shape
        bags = _bags(ids, offsets)
        return weight.new_zeros(len(offsets), weight.shape[1]).index_add_(0, bags, weight.index_select(0, ids))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ids, offsets = ctx.saved_tensors
        rows = grad.index_select(0, _bags(ids, offsets))
        return grad.new_zeros(ctx.shape).index_add_(0, ids, rows), None, None


class EmbeddingBagNoneEmpty(EmbeddingBag):
    """Bags after an empty one take the gradient of the bag before."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ids, offsets = ctx.saved_tensors
        starts = ids.new_zeros(len(ids) + 1)
        starts[offsets] = 1
        rows = grad.index_select(0, starts.cumsum(0)[:-1] - 1)
        return grad.new_zeros(ctx.shape).index_add_(0, ids, rows), None, None


def _bags(ids: Tensor, offsets: Tensor) -> Tensor:
    starts = ids.new_zeros(len(ids) + 1).index_add_(0, offsets, torch.ones_like(offsets))
    return starts.cumsum(0)[:-1] - 1


INDICES = (
    Hidden(
        name="embedding",
        change="indices",
        wrong=EmbeddingLastWins,
        right=Embedding,
        inputs=lambda: (normal(20, 5, 2), torch.tensor([3, 0, 1])),
        shows_at=lambda: (normal(20, 5, 2), torch.tensor([3, 0, 3])),
    ),
    Hidden(
        name="cross entropy",
        change="indices",
        wrong=CrossEntropyOfAll,
        right=CrossEntropy,
        inputs=lambda: (normal(21, 4, 3), torch.tensor([2, 0, 1, 1])),
        shows_at=lambda: (normal(21, 4, 3), torch.tensor([2, -100, 1, 1])),
    ),
    Hidden(
        name="segment mean",
        change="indices",
        wrong=SegmentMeanSorted,
        right=SegmentMean,
        inputs=lambda: (normal(22, 5, 2), torch.tensor([0, 0, 1, 1, 2]), 3),
        shows_at=lambda: (normal(22, 5, 2), torch.tensor([0, 1, 0, 1, 2]), 3),
    ),
    Hidden(
        name="embedding bag",
        change="indices",
        wrong=EmbeddingBagNoneEmpty,
        right=EmbeddingBag,
        inputs=lambda: (normal(23, 4, 2), torch.tensor([1, 3, 0, 3, 2]), torch.tensor([0, 2, 3])),
        shows_at=lambda: (normal(23, 4, 2), torch.tensor([1, 3, 0, 3, 2]), torch.tensor([0, 2, 2])),
    ),
)
