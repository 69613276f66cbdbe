"""Small reversible blocks: forward keeps its output, backward recomputes the input from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from tests.core.support import double

IMAGE = double([[0.3, -1.2, 0.7, 2.1], [-0.4, 0.9, 1.6, -0.8], [1.3, 0.5, -1.1, 0.2]])
X = double([[0.3, -1.2, 0.7], [2.1, -0.4, 1.5]])
_MIX = torch.tensor([[0.8, -0.5], [0.3, 1.1]], dtype=torch.float64)


def coupled(x: Tensor) -> Tensor:
    """Return (a + f(b), b + g(a + f(b))) for x = (a, b)."""
    a, b = x.chunk(2, -1)
    first = a + _branch(b)
    return torch.cat([first, b + _branch(first)], -1)


def uncoupled(y: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return x with coupled(x) = y, and the gradient by x."""
    (first, second), (to_first, to_second) = y.chunk(2, -1), grad.chunk(2, -1)
    b, to_first = second - _branch(first), to_first + _pulled(first, to_second)
    a, to_second = first - _branch(b), to_second + _pulled(b, to_first)
    return torch.cat([a, b], -1), torch.cat([to_first, to_second], -1)


class Rebuilds(Function):
    """Overwrites the kept output by the input: a second backward starts from other values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = coupled(x)
        ctx.kept = y.clone()
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, gradient = uncoupled(ctx.kept, grad)
        ctx.kept.copy_(x)
        return gradient


class Forgets(Rebuilds):
    """Deletes the kept output: a second backward raises AttributeError."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        kept = ctx.kept
        del ctx.kept
        return uncoupled(kept, grad)[1]


class Frees(Function):
    """Frees the input in forward, and the output in backward after recomputing the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = coupled(x)
        ctx.x, ctx.kept = x, y.detach()
        x.untyped_storage().resize_(0)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, gradient = uncoupled(ctx.kept, grad)
        ctx.x.data.set_(x)
        ctx.kept.untyped_storage().resize_(0)
        return gradient


class FreesBoth(Frees):
    """Frees with two inputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.kept = coupled(torch.cat([x, y], -1))
        x.untyped_storage().resize_(0)
        y.untyped_storage().resize_(0)
        return ctx.kept.view(ctx.kept.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        gradient = uncoupled(ctx.kept, grad)[1]
        ctx.kept.untyped_storage().resize_(0)
        return gradient.chunk(2, -1)


class Lasts(Rebuilds):
    """Right for `times` backwards over one graph and wrong afterwards, like a read of freed memory."""

    times = 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        ctx.asked = getattr(ctx, "asked", 0) + 1
        if ctx.asked > Lasts.times:
            ctx.kept.mul_(1.001)
        return uncoupled(ctx.kept, grad)[1]


class Refuses(Rebuilds):
    """Raises after two backwards over one graph, or after `times` of a subclass."""

    times = 2

    @classmethod
    def served(cls, ctx: Any) -> int:
        return int(getattr(ctx._forward_cls, "times", cls.times))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        ctx.asked = getattr(ctx, "asked", 0) + 1
        if ctx.asked > Refuses.served(ctx):
            raise RuntimeError("raise num_bwd_passes")
        return uncoupled(ctx.kept, grad)[1]


def refusing(times: int, function: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> type[Function]:
    """Return an elementwise Function whose graph serves `times` backwards and raises at the next."""

    class Refusing(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.kept, ctx.asked = x.detach().clone(), 0
            return function(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            ctx.asked += 1
            if ctx.asked > times:
                raise RuntimeError("no more backwards")
            return grad * slope(ctx.kept)

    return Refusing


def refusing_twice(times: int) -> type[Function]:
    """Return the square with a wrong second derivative, whose graph serves `times` backwards."""
    slope = refusing(times, lambda x: 2 * x, lambda x: torch.full_like(x, 2.02))

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * slope.apply(x)  # type: ignore[no-any-return]

    return Square


def root(x: Tensor) -> Tensor:
    return x.abs().sqrt()


class Random(Rebuilds):
    """Draws a scale from its own generator, which seeding does not affect."""

    generator = torch.Generator().manual_seed(0)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.scale = 1.0 + torch.rand((), generator=Random.generator, dtype=torch.float64)
        ctx.kept = coupled(x)
        return ctx.kept * ctx.scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, gradient = uncoupled(ctx.kept, grad * ctx.scale)
        ctx.kept.copy_(x)
        return gradient


class RandomOnce(Random):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        kept = ctx.kept
        del ctx.kept
        return uncoupled(kept, grad * ctx.scale)[1]


class RandomRepeats(Random):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return uncoupled(ctx.kept, grad * ctx.scale)[1]


def _branch(x: Tensor) -> Tensor:
    return torch.tanh(x @ _MIX)


def _pulled(x: Tensor, grad: Tensor) -> Tensor:
    return (grad * (1 - _branch(x).square())) @ _MIX.T
