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


class Bounded(nn.Module):
    """One parameter of one value that forward does not take elsewhere; all gradients are right."""

    def __init__(self, name, value, size=()):
        super().__init__()
        setattr(self, name, nn.Parameter(torch.full(size, value)))


class Root(Bounded):
    def __init__(self):
        super().__init__("decay", 0.9, (4,))

    def forward(self, x):
        return x * (1 - self.decay**2).sqrt()


class Checked(Bounded):
    def __init__(self):
        super().__init__("decay", 0.9, (4,))

    def forward(self, x):
        if not bool(((self.decay > 0) & (self.decay < 1)).all()):
            raise ValueError("expected a decay between 0 and 1")
        return x * self.decay


class Quantile(Bounded):
    def __init__(self):
        super().__init__("tau", 0.9)

    def forward(self, x):
        return torch.quantile(x, self.tau)


class Coin(Bounded):
    def __init__(self):
        super().__init__("probs", 0.9, (4,))

    def forward(self, x):
        return x * torch.distributions.Bernoulli(probs=self.probs, validate_args=True).log_prob(
            torch.ones(4, dtype=x.dtype)
        )


class Counted(Bounded):
    def __init__(self):
        super().__init__("n", 3.0)
        self.w = nn.Parameter(torch.linspace(1, 2, 12).reshape(3, 4))

    def forward(self, x):
        return x[: int(self.n.item())] * self.w


class Asserted(Bounded):
    def __init__(self):
        super().__init__("t", 1.0)

    def forward(self, x):
        assert abs(float(self.t.detach()) - 1.0) < 0.01
        return x * self.t


class ForgetsWeightUnderRoot(Norm):
    def __init__(self):
        super().__init__(4)
        self.decay = nn.Parameter(torch.full((4,), 0.9))

    def forward(self, x):
        return WithoutWeight.apply(x, self.weight, self.bias) * (1 - self.decay**2).sqrt()
