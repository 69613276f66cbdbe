"""Two inputs, two outputs."""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


class MyCustomFunction(torch.autograd.Function):
    """(x² + y², x·y)."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y)
        return x**2 + y**2, x * y

    @staticmethod
    def backward(ctx: FunctionCtx, grad_sum: Tensor, grad_product: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return 2 * x * grad_sum + y * grad_product, 2 * y * grad_sum + x * grad_product
