"""Saturated functions whose backward loses digits by cancellation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from tests.zoo.specimen import Draw, Specimen, at, diagonal, normal, specimen
from tests.zoo.wrong import Wrong, with_backward, wrong

_S = "saturated"
_Map = Callable[[Tensor], Tensor]


class Logit(Function):
    """A saturating function of 1/|x| with its second derivative multiplied by `factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return _logit(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _LogitSlope.apply(g, *ctx.saved_tensors, ctx.factor), None


class _LogitSlope(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(g, x)
        ctx.factor = factor
        return g * _derivatives(x)[0]

    @staticmethod
    def backward(ctx: Any, grad_of_grad: Tensor) -> tuple[Tensor, Tensor, None]:
        g, x = ctx.saved_tensors
        first, second = _derivatives(x)
        return grad_of_grad * first, grad_of_grad * g * second * ctx.factor, None


def _logit(x: Tensor) -> Tensor:
    return torch.logit(0.98 * torch.sigmoid(torch.rsqrt(x * x + 1e-5)) + 0.01)


def _derivatives(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(_logit(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    return first.detach(), second


def _gelu_outside_torch(x: Tensor) -> Tensor:
    """Return GELU as an extension computes it, where noisy arithmetic sees nothing of the rounding inside."""
    return x.new_tensor([0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x.flatten().tolist()]).view_as(
        x
    )


def _gelu_backward(g: Tensor, x: Tensor) -> Tensor:
    return g * (torch.erfc(-x / math.sqrt(2)) / 2 + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def _loss(x: Tensor) -> Tensor:
    return x.clamp(min=0) - x + (-x.abs()).exp().log1p()


def _large(count: int, scale: float) -> Draw:
    """Return a draw of `count` normal values times `scale`, the same for every seed."""

    def draw(generator: torch.Generator) -> Tensor:
        own = torch.Generator().manual_seed(count)
        return (scale * torch.randn(count, generator=own, dtype=torch.float64)).requires_grad_()

    return draw


def _narrow(count: int, dtype: torch.dtype) -> Draw:
    def draw(generator: torch.Generator) -> Tensor:
        return (3 * torch.randn(count, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()

    return draw


def _slope_saved(forward: _Map, slope: _Map) -> _Map:
    """Return a Function that saves its slope: to autograd a constant, whose derivative is missing at order 2."""

    class SlopeSaved(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(slope(x))
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.saved_tensors[0]

    return SlopeSaved.apply


# With their slopes, which are 1e15 or more beyond zero: no size of what backward rounds at the point.
_STEEP_BEYOND_ZERO: tuple[tuple[str, _Map, _Map, Draw], ...] = (
    ("log of a clamp", lambda x: x.clamp(min=1e-20).log(), lambda x: 1 / x.clamp(min=1e-20), at([0.5])),
    ("log of a relu", lambda x: (x.relu() + 1e-16).log(), lambda x: (x > 0) / (x.relu() + 1e-16), at([1.0])),
    ("sqrt of a relu", lambda x: x.relu().sqrt(), lambda x: 1 / (2 * x.relu().sqrt() + 1e-15), at([0.5])),
    (
        "sqrt of the relu of a sum",
        lambda x: x.sum().relu().sqrt(),
        lambda x: (1 / (2 * x.sum().relu().sqrt() + 1e-15)).expand_as(x),
        at(2.0, -1.0),
    ),
)
_SLOPE = diagonal(lambda x: -(-x).sigmoid())
_SURE = with_backward(_loss, lambda g, x: g * (x.sigmoid() - 1))  # 1 - sigmoid cancels for large x
_SURE_OF_MANY = with_backward(functional.logsigmoid, lambda g, x: g * (1 - x.sigmoid()))
_TANH = with_backward(torch.tanh, lambda g, x: g * (1 - x.tanh() ** 2))
_SINGLE, _BRAIN = torch.float32, torch.bfloat16

SATURATED: tuple[Specimen, ...] = (
    *(
        specimen(f"loss of a sure prediction, logit {logit:g}", _SURE, _S, x=at([logit]), exact=_SLOPE)
        for logit in (22.0, 30.0, 36.0, 40.0)
    ),
    specimen("loss of a sure prediction beside others", _SURE, _S, x=at(30.0, 0.3, -1.2), exact=_SLOPE),
    specimen("30 log sigmoids, up to 36", _SURE_OF_MANY, _S, x=_large(30, 36.0)),
    specimen("100 log sigmoids, up to 60", _SURE_OF_MANY, _S, x=_large(100, 60.0)),
    specimen(
        "loss of a sure prediction, accurate",
        with_backward(_loss, lambda g, x: -g * (-x).sigmoid()),
        _S,
        x=at([30.0]),
        exact=_SLOPE,
    ),
    *(
        specimen(
            f"attention of scores {scale:g} apart",
            lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
            _S,
            q=normal(4, 3, scale=scale),
            k=normal(4, 3, scale=scale),
            v=normal(4, 3),
        )
        for scale in (3.0, 5.0, 10.0)
    ),
    specimen("float32 sigmoid, saturated", torch.sigmoid, _S, "float32", x=at([16.5], dtype=_SINGLE)),
    specimen("float32 tanh, saturated", torch.tanh, _S, "float32", x=at(8.6, -8.7, 0.5, dtype=_SINGLE)),
    specimen(
        "float32 softmax of two, saturated",
        lambda x: x.softmax(-1),
        _S,
        "float32",
        x=at([0.0, 12.0], [-9.0, 3.0], dtype=_SINGLE),
    ),
    specimen(
        "float32 sum of saturated sigmoids",
        lambda x: x.sigmoid().sum(0),
        _S,
        "float32",
        x=at([14.0, -3.0], [15.5, 9.0], dtype=_SINGLE),
    ),
    specimen("float32 tanh by hand, 32 entries", _TANH, _S, "float32", "borderline", x=_narrow(32, _SINGLE)),
    specimen(
        "bfloat16 tanh by hand, 32 entries",
        _TANH,
        _S,
        "bfloat16",
        "borderline",
        "open at order 2",
        x=_narrow(32, _BRAIN),
    ),
    specimen(
        "bfloat16 sigmoid, saturated", torch.sigmoid, _S, "bfloat16", "borderline", x=at(5.5, -6.5, 0.5, dtype=_BRAIN)
    ),
    # The outputs change by whole units of rounding of the erf or tanh inside, far more than their slope.
    specimen("gelu far out", with_backward(_gelu_outside_torch, _gelu_backward), _S, x=at([-8.37])),
    specimen("x(1 + tanh x) far out", lambda x: x * (1 + torch.tanh(x)), _S, x=at([-18.964])),
    # There 1 - sigmoid(x) is a few roundings of 1, so that the output moves in stairs.
    specimen("log(1 - sigmoid) far up", lambda x: (1 - torch.sigmoid(x)).log(), _S, "borderline", x=at(33.0, 35.5)),
    # As gelu far out, but with the rounding in float32, which noise in float64 does not show.
    specimen(
        "float32 gelu inside, far out", lambda x: functional.gelu(x.float()).double(), _S, "borderline", x=at([-5.3])
    ),
    specimen("logit of a saturated sigmoid", _logit, _S, "order 2", x=at([-0.0345158688])),
    specimen(
        "logit of saturated sigmoids beside others",
        _logit,
        _S,
        "order 2",
        x=at(-0.0345158688, 0.5, 1.0, 2.0),
    ),
    specimen(
        "logit of a saturated sigmoid, by hand",
        Logit.apply,
        _S,
        "order 2",
        x=at([-0.0345158688]),
        factor=1.0,
    ),
    *(specimen(name, function, _S, "order 2", x=point) for name, function, _, point in _STEEP_BEYOND_ZERO),
)

WRONG_SATURATED: tuple[Wrong, ...] = (
    wrong(
        "exp far down, off by 1e-6",
        with_backward(torch.exp, lambda g, x: g * x.exp() * (1 + 1e-6)),
        "x",
        (0,),
        (0,),
        _S,
        x=at([-300.0]),
    ),
    wrong(
        "sure prediction, off by 1e-6",
        with_backward(_loss, lambda g, x: -g * (-x).sigmoid() * (1 + 1e-6)),
        "x",
        (0,),
        (0,),
        _S,
        x=at([30.0]),
    ),
    wrong(
        "sure prediction, doubled",
        with_backward(_loss, lambda g, x: -2 * g * (-x).sigmoid()),
        "x",
        (0,),
        (0,),
        _S,
        x=at([22.0]),
    ),
    wrong(
        "30 log sigmoids, off by 1e-3",
        with_backward(functional.logsigmoid, lambda g, x: g * (-x).sigmoid() * (1 - 1e-3)),
        "x",
        (0,),
        (0,),
        _S,
        x=_large(30, 36.0),
    ),
    wrong(
        "float32 saturated tanh, off by a hundredth",
        with_backward(torch.tanh, lambda g, x: 1.01 * g * (1 - x.tanh() ** 2)),
        "x",
        (2,),
        (2,),
        _S,
        "float32",
        x=at(8.6, -8.7, 0.5, dtype=_SINGLE),
    ),
    wrong(
        "float32 saturated tanh, wrong sign",
        with_backward(torch.tanh, lambda g, x: g * (x.tanh() ** 2 - 1)),
        "x",
        (2,),
        (2,),
        _S,
        "float32",
        x=at(8.6, -8.7, 0.5, dtype=_SINGLE),
    ),
    wrong(
        "bfloat16 tanh without its square",
        with_backward(torch.tanh, lambda g, x: g * (1 - x.tanh())),
        "x",
        (0,),
        (0,),
        _S,
        "bfloat16",
        x=at(0.75, 1.5, -2.0, dtype=_BRAIN),
    ),
    *(
        wrong(f"{name}, slope saved", _slope_saved(*both), "x", (0,), (0,), _S, check="gradgradcheck", x=point)
        for name, *both, point in _STEEP_BEYOND_ZERO
    ),
)
