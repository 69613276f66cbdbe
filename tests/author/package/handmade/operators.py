"""Operators of torch.library: one of a tensor, one of a list of tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.library.custom_op("handmade::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    """x³."""
    return x * x * x


@cube.register_fake
def _(x):
    return torch.empty_like(x)


def _save_input(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _cube_backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * 2 * x * x  # wrong: 3 x²


cube.register_autograd(_cube_backward, setup_context=_save_input)


@torch.library.custom_op("handmade::joined", mutates_args=())
def joined(tensors: Sequence[Tensor], factor: float = 2.0) -> Tensor:
    """The tensors, one after the other, times a factor."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]) * factor


@joined.register_fake
def _(tensors, factor=2.0):
    return tensors[0].new_empty(sum(tensor.numel() for tensor in tensors))


def _save_shapes(ctx, inputs, output):
    tensors, ctx.factor = inputs
    ctx.shapes = [tensor.shape for tensor in tensors]


def _joined_backward(ctx, grad):
    parts = grad.split([shape.numel() for shape in ctx.shapes])
    return [ctx.factor * part.reshape(shape) for part, shape in zip(parts, ctx.shapes, strict=True)], None


joined.register_autograd(_joined_backward, setup_context=_save_shapes)
