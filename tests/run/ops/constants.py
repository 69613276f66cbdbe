"""Modules whose parameters start at one value everywhere."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class WithoutWeight(torch.autograd.Function):
    """RMS norm whose backward leaves out the weight."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(x, weight, rstd)
        return x * rstd * weight + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, _, rstd = ctx.saved_tensors
        normed = x * rstd
        by_x = rstd * (grad - normed * (grad * normed).mean(-1, keepdim=True))
        return by_x, (grad * normed).sum(0), grad.sum(0)


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))


class ForgetsWeight(Norm):
    def forward(self, x):
        return WithoutWeight.apply(x, self.weight, self.bias)


class Right(Norm):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight + self.bias


class Held(nn.Module):
    """Parameters of every kind; forward uses one of them."""

    def __init__(self):
        super().__init__()
        self.ones = nn.Parameter(torch.ones(5))
        self.small = nn.Parameter(torch.full((2, 3), 1e-5))
        self.negative = nn.Parameter(torch.full((3,), -2.0))
        self.zeros = nn.Parameter(torch.zeros(4))
        self.temperature = nn.Parameter(torch.tensor(4.0))
        self.twice, self.thrice, self.last = (nn.Parameter(torch.ones(5)) for _ in range(3))
        self.varied = nn.Parameter(torch.linspace(1, 2, 4))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.endless = nn.Parameter(torch.full((2,), float("inf")))
        self.empty = nn.Parameter(torch.empty(0))

    def forward(self, x):
        return x * self.temperature
