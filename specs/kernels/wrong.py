"""The kernels of this folder with one mistake each, to show that it is found. Every mistake is one that happens."""

import torch
import triton.language as tl
from attention import Attention, attention_backward, dots_of_rows
from cross_entropy import CrossEntropy, cross_entropy_backward
from layer_norm import LayerNorm, layer_norm_backward, sum_of_partials
from rotary import Rotary, rotate
from softmax import Softmax, softmax_backward, softmax_forward
from swiglu import BLOCK, SwiGLU, swiglu_backward
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


class SoftmaxCountingPadding(Softmax):
    """The end of a block is filled with 0 instead of -inf, so that each place there adds exp(0) to the sum."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        y = softmax_forward(x.contiguous(), padding=0.0)
        ctx.save_for_backward(y)
        return y


class SoftmaxIgnoringStrides(Softmax):
    """A transposed input is read as if the entries of a row were next to each other."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y


class SoftmaxOverwritingCotangent(Softmax):
    """The gradient is written into the memory of the cotangent, which autograd may still need."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        grad = grad.contiguous()
        return softmax_backward(y, grad, out=grad)


class LayerNormOfLastGroup(LayerNorm):
    """The gradients by weight and bias are those of the rows of the last group alone."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        dx, weight_sums, bias_sums = layer_norm_backward(grad.contiguous(), *ctx.saved_tensors)
        return dx, weight_sums[-1].to(dx.dtype), bias_sums[-1].to(dx.dtype), None


class LayerNormForgettingRows(LayerNorm):
    """Rows are divided among groups without rounding up, so that the rows of the remainder are in no group."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        grad = grad.contiguous()
        dx, _, _ = layer_norm_backward(grad, *ctx.saved_tensors)
        _, *sums = layer_norm_backward(grad, *ctx.saved_tensors, rows_per_group=len(grad) // 4)
        return dx, *(sum_of_partials(each, dx.dtype) for each in sums), None


class LayerNormSummingInBfloat16(LayerNorm):
    """One program sums the gradients by weight and bias over all rows, in bfloat16: there 256 + 1 is 256.

    Its forward is no kernel: interpreted, half of the time would go into rows that are right.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
        variance, mean = torch.var_mean(x.float(), dim=1, correction=0)
        rstd = (variance + eps).rsqrt()
        ctx.save_for_backward(x.contiguous(), weight.contiguous(), mean, rstd)
        return ((x.float() - mean[:, None]) * rstd[:, None] * weight.float() + bias.float()).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        dx, *sums = layer_norm_backward(
            grad.contiguous(), *ctx.saved_tensors, rows_per_group=len(grad), accumulator=tl.bfloat16
        )
        return dx, *(sum_of_partials(each, dx.dtype) for each in sums), None


class CrossEntropyCountingIgnored(CrossEntropy):
    """Backward divides by the number of all rows, forward by the number of those that are not ignored."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, target, logsumexp, _ = ctx.saved_tensors
        scale = grad.to(torch.float32) / len(logits)
        return cross_entropy_backward(logits, target, logsumexp, scale, ctx.ignore_index), None, None


class CrossEntropyLearningIgnored(CrossEntropy):
    """Backward gives ignored rows a gradient."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, target, logsumexp, count = ctx.saved_tensors
        return cross_entropy_backward(logits, target, logsumexp, grad.to(torch.float32) / count, None), None, None


class SwiGLUWithoutTail(SwiGLU):
    """The number of programs is rounded down, so that no program writes the end of the gradients."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return swiglu_backward(gate, up, grad.contiguous(), gate.numel() // BLOCK)


class RotaryTurningForward(Rotary):
    """Backward turns in the direction of forward."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        return rotate(grad, *ctx.saved_tensors, direction=1), None, None


class AttentionWithoutDiagonal(Attention):
    """The causal mask of backward is off by one: no query sees the key of its own position."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, logsumexp = ctx.saved_tensors
        grad = grad.contiguous()
        dots = dots_of_rows(out, grad)
        return *attention_backward(q, k, v, grad, logsumexp, dots, ctx.causal, shift=1), None


class AttentionWithoutDots(Attention):
    """The dot products of outputs and cotangents, the part of the sum of softmax, are forgotten."""

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, _, logsumexp = ctx.saved_tensors
        dots = torch.zeros_like(logsumexp)
        return *attention_backward(q, k, v, grad.contiguous(), logsumexp, dots, ctx.causal), None
