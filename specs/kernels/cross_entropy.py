"""Cross entropy of logits and class indices, without a tensor of probabilities."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

_BLOCK = 64  # classes loaded at once: vocabularies do not fit into one block


class CrossEntropy(torch.autograd.Function):
    """Mean of logsumexp(row) - row[target] over the rows whose target is not `ignore_index`."""

    @staticmethod
    def forward(ctx: FunctionCtx, logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
        logits, target = logits.contiguous(), target.contiguous()
        losses, logsumexp = cross_entropy_forward(logits, target, ignore_index)
        count = (target != ignore_index).sum()
        ctx.save_for_backward(logits, target, logsumexp, count)
        ctx.ignore_index = ignore_index
        return (losses.sum() / count).to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, target, logsumexp, count = ctx.saved_tensors
        scale = grad.to(torch.float32) / count
        return cross_entropy_backward(logits, target, logsumexp, scale, ctx.ignore_index), None, None


def cross_entropy_forward(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the loss and the logsumexp of each row in float32; an ignored row has the loss 0."""
    rows, classes = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    logsumexp = torch.empty_like(losses)
    _forward[(rows,)](logits, target, losses, logsumexp, classes, ignore_index, BLOCK=_BLOCK)
    return losses, logsumexp


def cross_entropy_backward(
    logits: Tensor, target: Tensor, logsumexp: Tensor, scale: Tensor, ignore_index: int | None
) -> Tensor:
    """Return scale * (softmax - one-hot target), 0 in ignored rows. No row is ignored if `ignore_index` is None."""
    rows, classes = logits.shape
    dlogits = torch.empty_like(logits)
    ignored = classes if ignore_index is None else ignore_index
    _backward[(rows,)](logits, target, logsumexp, scale, dlogits, classes, ignored, BLOCK=_BLOCK)
    return dlogits


@triton.jit
def _forward(logits_ptr, target_ptr, losses_ptr, logsumexp_ptr, classes, ignore_index, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = row * classes
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, classes, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + start + column, mask=column < classes, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(largest, x)
        # A lane that has seen only padding keeps -inf, and -inf - -inf is no number.
        total = tl.where(higher == float("-inf"), 0.0, total * tl.exp(largest - higher) + tl.exp(x - higher))
        largest = higher
    peak = tl.max(largest, axis=0)
    logsumexp = peak + tl.log(tl.sum(total * tl.exp(largest - peak), axis=0))
    target = tl.load(target_ptr + row)
    counted = target != ignore_index
    # No class outside of the row is read, whatever the target says.
    known = counted & (target >= 0) & (target < classes)
    chosen = tl.load(logits_ptr + start + target, mask=known, other=0.0).to(tl.float32)
    tl.store(losses_ptr + row, tl.where(counted, logsumexp - chosen, 0.0))
    tl.store(logsumexp_ptr + row, logsumexp)


@triton.jit
def _backward(
    logits_ptr, target_ptr, logsumexp_ptr, scale_ptr, dlogits_ptr, classes, ignore_index, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    start = row * classes
    target = tl.load(target_ptr + row)
    logsumexp = tl.load(logsumexp_ptr + row)
    scale = tl.where(target != ignore_index, tl.load(scale_ptr), 0.0)
    for first in range(0, classes, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = column < classes
        x = tl.load(logits_ptr + start + column, mask=inside, other=float("-inf")).to(tl.float32)
        dx = scale * (tl.exp(x - logsumexp) - tl.where(column == target, 1.0, 0.0))
        tl.store(dlogits_ptr + start + column, dx.to(dlogits_ptr.dtype.element_ty), mask=inside)
