"""A ReLU whose backward writes a constant where it should write zero."""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


class CustomReLU(torch.autograd.Function):
    """max(x, 0); where x ≤ 0, backward returns −0.5 whatever the cotangent is."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: FunctionCtx, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[x <= 0] = -0.5
        return grad_input
