"""Activations: one the usual way, one with setup_context, one that takes an object with its settings."""

from dataclasses import dataclass

import torch


class ClippedReLU(torch.autograd.Function):
    """min(max(x, 0), clip), with a gradient that forgets both bounds."""

    @staticmethod
    def forward(ctx, x, clip):
        return x.clamp(0, clip)

    @staticmethod
    def backward(ctx, grad):
        return grad.clone(), None


class Swish(torch.autograd.Function):
    """x * sigmoid(beta * x)."""

    @staticmethod
    def forward(x, beta=1.0):
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.beta = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(ctx.beta * x)
        return grad * (gate + ctx.beta * x * gate * (1 - gate)), None


@dataclass(frozen=True)
class Slopes:
    """The slopes of a leaky activation."""

    negative: float
    positive: float = 1.0


class Leaky(torch.autograd.Function):
    """slopes.negative * x below zero, slopes.positive * x above it."""

    @staticmethod
    def forward(ctx, x, slopes):
        ctx.save_for_backward(x)
        ctx.slopes = slopes
        return torch.where(x > 0, slopes.positive * x, slopes.negative * x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.where(x > 0, ctx.slopes.positive, ctx.slopes.negative), None
