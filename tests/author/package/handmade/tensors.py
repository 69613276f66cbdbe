"""Functions of several tensors, of a tensor of indices, and of a module."""

import torch
from torch.autograd.function import once_differentiable


class WeightedSum(torch.autograd.Function):
    """scale * (a + b + …)."""

    @staticmethod
    def forward(ctx, scale, *tensors):
        ctx.scale = scale
        ctx.count = len(tensors)
        return scale * torch.stack(tensors).sum(dim=0)

    @staticmethod
    def backward(ctx, grad):
        return None, *(ctx.scale * grad for _ in range(ctx.count))


class Lookup(torch.autograd.Function):
    """weight[index]; a row that is looked up twice gets the gradients of both."""

    @staticmethod
    def forward(ctx, weight, index):
        ctx.save_for_backward(index)
        ctx.shape = weight.shape
        return weight[index]

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        columns = ctx.shape[1]
        found = grad.new_zeros(ctx.shape)
        return found.index_add(0, index.reshape(-1), grad.reshape(-1, columns)), None


class Recomputed(torch.autograd.Function):
    """module(x), whose graph is built again in backward; the parameters of the module get no gradient."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.save_for_backward(x)
        ctx.module = module
        return module(x).detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(ctx.module(again), again, grad)
        return found, None
