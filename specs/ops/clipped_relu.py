"""A ReLU with a ceiling, once with its mask and once without."""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


class ClippedReLUFunction(torch.autograd.Function):
    """clamp(x, 0, clip_val)."""

    @staticmethod
    def forward(ctx: FunctionCtx, input_tensor: Tensor, clip_val: float) -> Tensor:
        ctx.save_for_backward(input_tensor)
        ctx.clip_val = clip_val
        return input_tensor.clamp(0, clip_val)

    @staticmethod
    def backward(ctx: FunctionCtx, grad_output: Tensor) -> tuple[Tensor, None]:
        (input_tensor,) = ctx.saved_tensors
        inside = (input_tensor > 0) & (input_tensor < ctx.clip_val)
        return grad_output * inside, None


class IncorrectClippedReLU(torch.autograd.Function):
    """clamp(x, 0, clip_val) with a backward that forgets the mask, on purpose."""

    @staticmethod
    def forward(ctx: FunctionCtx, input_tensor: Tensor, clip_val: float) -> Tensor:
        return input_tensor.clamp(0, clip_val)

    @staticmethod
    def backward(ctx: FunctionCtx, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output.clone(), None


def clipped_relu(x: Tensor, clip_val: float = 1.0) -> Tensor:
    """Apply ClippedReLUFunction, with a ceiling of one unless told otherwise."""
    return ClippedReLUFunction.apply(x, clip_val)
