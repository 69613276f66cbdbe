"""A slope that changes at zero, written with boolean indexing."""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


class ConditionalOp(torch.autograd.Function):
    """2x where x > 0, x/2 elsewhere: right everywhere, with a kink at zero."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        result = x.clone()
        result[x > 0] *= 2
        result[x <= 0] *= 0.5
        return result

    @staticmethod
    def backward(ctx: FunctionCtx, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[x > 0] *= 2
        grad_input[x <= 0] *= 0.5
        return grad_input
