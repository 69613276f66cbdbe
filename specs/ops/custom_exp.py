"""An exponential whose backward carries a stray factor of two."""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


class CustomExp(torch.autograd.Function):
    """e^x; backward returns 2·e^x·g, which is twice the truth."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: FunctionCtx, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x.exp() * grad_output
