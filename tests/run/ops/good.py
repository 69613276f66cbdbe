"""Operations that are right, in every form that a target can have."""

import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class NewStyle(torch.autograd.Function):
    @staticmethod
    def forward(x, scale=3.0, power=2):
        return scale * x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1] if len(inputs) > 1 else 3.0
        ctx.power = inputs[2] if len(inputs) > 2 else 2
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        gradient = ctx.scale * ctx.power * x ** (ctx.power - 1) * grad
        return (gradient, *(None,) * (ctx.count - 1))


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale=2.0, *xs):
        ctx.scale, ctx.count = scale, len(xs)
        return scale * sum(xs)

    @staticmethod
    def backward(ctx, grad):
        return (None, *(ctx.scale * grad for _ in range(ctx.count)))


class Once(Square):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class WrongCube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x**2 * grad


class Scaled(torch.nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size))
        self.fixed = torch.nn.Parameter(torch.ones(size), requires_grad=False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, *, shift=0.0):
        self.calls += 1
        return self.weight * x * x * self.calls + shift + self.fixed


class Nested:
    inner = Square


def square(x, factor=1.0):
    return factor * x * x


def keywords(x, *, factor, **others):
    return x * factor * others.get("more", 1.0)


def total(xs, dtype, size, device, options):
    assert dtype is torch.float32
    assert isinstance(size, torch.Size)
    assert isinstance(device, torch.device)
    assert isinstance(options, tuple)
    return sum(x * x for x in xs)


def integers(x):
    return x


def make(size=3):
    return [torch.randn(size, dtype=torch.float32), torch.arange(size)]


def noise(x):
    return x * torch.rand(())


NOT_CALLABLE = 3


apply_square = Square.apply


def through_square(x):
    return Square.apply(x + 1)


def through_both(x):
    return Square.apply(x) + Once.apply(x)


class Squares(torch.nn.Module):
    def forward(self, x):
        return Square.apply(x)
