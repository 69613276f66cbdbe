"""Functions on which the speed of checks is measured: torch's own and hand-written ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

EVERY = "all checks"  # as a check's name: all of ours but `compile`, beside torch's two


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One function with the shapes of its inputs."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float64
    check: str = "gradcheck"
    wrong: bool = False  # its gradient is wrong
    with_torch: bool = True  # True if gradcheck runs it in reasonable time


def _padded(x: Tensor, w: Tensor) -> Tensor:
    return functional.conv2d(x, w, padding=1)


def _normalised(x: Tensor) -> Tensor:
    return functional.layer_norm(x, (32,))


def _of_two(x: Tensor) -> Tensor:
    return functional.layer_norm(x, (2,))  # its backward is mostly rounding


class Sine(torch.autograd.Function):
    """Hand-written sin."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return cotangent * x.cos()


class CrossEntropy(torch.autograd.Function):
    """Hand-written loss: one output that depends on every entry of two inputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor) -> Tensor:
        logs = x.log_softmax(-1)
        ctx.save_for_backward(logs, target)
        return -(logs * target).sum() / len(x)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        logs, target = ctx.saved_tensors
        scale = cotangent / len(logs)
        return scale * (logs.exp() * target.sum(-1, keepdim=True) - target), -scale * logs


class WrongProduct(torch.autograd.Function):
    """Matrix product with all derivatives 0.1 % too large."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return 1.001 * cotangent @ b.T, 1.001 * a.T @ cotangent


class WrongWeight(torch.autograd.Function):
    """Convolution whose backward leaves out one of the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return _padded(x, w)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        gradient = torch.nn.grad.conv2d_weight(x, w.shape, cotangent, padding=1)
        gradient[3, 2, 1, 1] = 0
        return torch.nn.grad.conv2d_input(x.shape, w, cotangent, padding=1), gradient


WORKS = (
    *(
        Work(name=f"sin, {10**k} elements", function=torch.sin, shapes=((10**k,),), with_torch=k < 5)
        for k in range(1, 7)
    ),
    Work(name="relu, 1000 elements", function=torch.relu, shapes=((1000,),)),
    Work(name="layer norm 64x32", function=_normalised, shapes=((64, 32),)),
    Work(name="softmax 64x32", function=lambda x: x.softmax(-1), shapes=((64, 32),)),
    Work(name="matmul 32x32 by 32x32", function=torch.matmul, shapes=((32, 32), (32, 32))),
    Work(name="matmul 32x32, all wrong", function=WrongProduct.apply, shapes=((32, 32), (32, 32)), wrong=True),
    Work(name="conv2d 2x3x16x16 by 4x3x3x3", function=functional.conv2d, shapes=((2, 3, 16, 16), (4, 3, 3, 3))),
    Work(name="cross entropy by hand 16x10", function=CrossEntropy.apply, shapes=((16, 10), (16, 10))),
    Work(name="cross entropy by hand 64x10", function=CrossEntropy.apply, shapes=((64, 10), (64, 10))),
    Work(
        name="conv2d 8x16x32x32 by 32x16x3x3",
        function=_padded,
        shapes=((8, 16, 32, 32), (32, 16, 3, 3)),
        with_torch=False,
    ),
    Work(
        name="conv2d 8x16x32x32, wrong weight",
        function=WrongWeight.apply,
        shapes=((8, 16, 32, 32), (32, 16, 3, 3)),
        wrong=True,
        with_torch=False,
    ),
    Work(name="cumsum, 3000 elements", function=lambda x: x.cumsum(0), shapes=((3000,),), with_torch=False),
    Work(
        name="sin, 1000 elements, bfloat16",
        function=torch.sin,
        shapes=((1000,),),
        dtype=torch.bfloat16,
        with_torch=False,
    ),
    Work(
        name="layer norm 64x32, float32",
        function=_normalised,
        shapes=((64, 32),),
        dtype=torch.float32,
        with_torch=False,
    ),
    Work(name="layer norm 8x2, float32", function=_of_two, shapes=((8, 2),), dtype=torch.float32, with_torch=False),
    Work(name="5 elements", function=torch.sin, shapes=((5,),)),
    Work(name="5 elements, order 2", function=torch.sin, shapes=((5,),), check="gradgradcheck"),
    Work(name="5 elements, all checks", function=Sine.apply, shapes=((5,),), check=EVERY),
    Work(name="300 elements, order 2", function=torch.sin, shapes=((300,),), check="gradgradcheck"),
    Work(name="1000 elements, order 2", function=torch.sin, shapes=((1000,),), check="gradgradcheck"),
)
