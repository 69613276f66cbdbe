"""Specimens with a typical wrong backward, and a wrong entry that the check must name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.result import CheckResult, Verdict
from tests.zoo.specimen import Specimen, at, normal, specimen, uniform

Backward = Callable[..., Any]  # (cotangent, *inputs) -> gradient of every input
Index = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A function with a wrong backward, and one wrong entry of its Jacobian."""

    specimen: Specimen
    wrt: str  # input of the entry
    output_index: Index
    input_index: Index
    check: str = "gradcheck"

    def is_named_in(self, result: CheckResult) -> bool:
        """Return True if the check fails and names the wrong entry."""
        named = {
            (finding.wrt, element.output_index, element.input_index)
            for finding in result.findings
            if finding.verdict is Verdict.FAIL
            for element in finding.elements
        }
        return result.verdict is Verdict.FAIL and (self.wrt, self.output_index, self.input_index) in named


def with_backward(forward: Callable[..., Any], backward: Backward) -> Callable[..., Any]:
    """Return a Function with this forward and backward."""

    class Planted(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            ctx.inputs = inputs
            return forward(*inputs)

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> Any:
            return backward(cotangent, *ctx.inputs)

    return Planted.apply


def wrong(
    name: str,
    function: Callable[..., Any],
    wrt: str,
    output: Index,
    entry: Index,
    *tags: str,
    check: str = "gradcheck",
    **draws: Any,
) -> Wrong:
    """Return a wrong specimen and its wrong entry; `draws` are as in `specimen`."""
    made = specimen(name, function, *tags, **draws)
    return Wrong(specimen=made, wrt=wrt, output_index=output, input_index=entry, check=check)


def _one_entry(g: Tensor, x: Tensor) -> Tensor:
    gradient = g * x.cos()
    gradient[3] *= 1 + 1e-6
    return gradient


def _softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def _within_capacity(y: Tensor) -> Tensor:
    """Set the rows from the 129th on to zero, as a layer of experts does."""
    return torch.cat([y[:128], torch.zeros_like(y[128:])])


_WEIGHTS = torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
_TARGETS = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    return (x + mask).logsumexp(-1)


def _half(g: Tensor, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = g * (x + mask).softmax(-1)
    return weights / 2, weights


_FILL_VALUES = (-1e9, -1e20, -1e30, float(torch.finfo(torch.float32).min), float(torch.finfo(torch.float64).min))

WRONG: tuple[Wrong, ...] = (
    *(
        wrong(
            f"half a gradient beside a mask of {fill:.2g}, differentiated too",
            with_backward(_masked_sum, _half),
            "x",
            (),
            (1,),
            x=at(0.3, 0.5, 0.7, 0.9),
            mask=at(0.0, 0.0, fill, fill),
        )
        for fill in _FILL_VALUES
    ),
    wrong("one entry of sin off by 1e-6", with_backward(torch.sin, _one_entry), "x", (3,), (3,), x=normal(6)),
    wrong("square without its 2", with_backward(torch.square, lambda g, x: g * x), "x", (0,), (0,), x=normal(3)),
    wrong("sign of cos", with_backward(torch.cos, lambda g, x: g * x.sin()), "x", (1,), (1,), x=normal(3)),
    wrong("relu without its mask", with_backward(torch.relu, lambda g, x: g), "x", (1,), (1,), x=at(1.0, -2.0)),
    wrong(
        "relu beyond its slopes at zero",
        with_backward(torch.relu, lambda g, x: g * (1 + (x == 0))),
        "x",
        (0,),
        (0,),
        x=at([0.0]),
    ),
    wrong(
        "relu, wrong side 1e-5 from its kink",
        with_backward(lambda x: (x - 1).relu(), lambda g, x: g * (x < 1)),
        "x",
        (0,),
        (0,),
        x=at(1.00001, 2.0),
    ),
    wrong(
        "distance from 100 targets 1e-5 away, wrong sign",
        with_backward(lambda x: (x - _TARGETS).abs().sum(), lambda g, x: -g * (x - _TARGETS).sign()),
        "x",
        (),
        (0,),
        x=at((_TARGETS * (1 + 1e-5 * _TARGETS.roll(1))).tolist()),
    ),
    wrong(
        "rows beyond a capacity dropped, no gradient",
        with_backward(lambda x: _within_capacity(x @ _WEIGHTS), lambda g, x: 0 * g),
        "x",
        (0, 0),
        (0, 0),
        x=at([0.0] * 4, [0.0] * 4),
    ),
    wrong(
        "clamp that ignores its upper bound",
        with_backward(lambda x: x.clamp(-1, 1), lambda g, x: g * (x > -1)),
        "x",
        (1,),
        (1,),
        x=at(0.3, 1.7),
    ),
    wrong(
        "softmax as if elementwise",
        with_backward(_softmax, lambda g, x: g * _softmax(x) * (1 - _softmax(x))),
        "x",
        (0,),
        (1,),
        x=normal(3),
    ),
    wrong(
        "mean instead of sum",
        with_backward(lambda x: x.sum(0), lambda g, x: (g / len(x)).expand_as(x)),
        "x",
        (1,),
        (2, 1),
        x=normal(4, 2),
    ),
    wrong(
        "matmul without a transpose",
        with_backward(torch.matmul, lambda g, a, b: (g @ b, a.mT @ g)),
        "a",
        (0, 0),
        (0, 1),
        a=normal(2, 2),
        b=normal(2, 2),
    ),
    wrong(
        "factors swapped",
        with_backward(torch.mul, lambda g, x, y: (g * x, g * y)),
        "x",
        (0,),
        (0,),
        x=normal(3),
        y=normal(3),
    ),
    wrong(
        "cumsum run forwards",
        with_backward(lambda x: x.cumsum(0), lambda g, x: g.cumsum(0)),
        "x",
        (2,),
        (0,),
        x=normal(4),
    ),
    wrong(
        "roll in the same direction",
        with_backward(lambda x: x.roll(1), lambda g, x: g.roll(1)),
        "x",
        (1,),
        (0,),
        x=normal(5),
    ),
    wrong(
        "gradient rounded to bfloat16",
        with_backward(torch.exp, lambda g, x: (g * x.exp()).bfloat16().double()),
        "x",
        (0,),
        (0,),
        x=at(0.3, 1.1),
    ),
    wrong(
        "small gradient, seven times",
        with_backward(lambda x: 1e-6 * x.sin(), lambda g, x: 7e-6 * g * x.cos()),
        "x",
        (0,),
        (0,),
        x=normal(3),
    ),
    wrong(
        "x² at 1e8 off by 1e-5",
        with_backward(torch.square, lambda g, x: 2 * g * x * (1 + 1e-5)),
        "x",
        (0,),
        (0,),
        x=at(1e8, 1.0),
    ),
    wrong(
        "log at 1e-5 off by 1e-5",
        with_backward(torch.log, lambda g, x: g / x * (1 + 1e-5)),
        "x",
        (0,),
        (0,),
        x=at(1e-5, 1.0),
    ),
    wrong(
        "a term left out",
        with_backward(lambda x: x * x.sigmoid(), lambda g, x: g * x.sigmoid()),
        "x",
        (0,),
        (0,),
        x=at(0.5, -1.0),
    ),
    wrong(
        "detached",
        with_backward(lambda x, y: x * y, lambda g, x, y: (g * y, None)),
        "y",
        (0,),
        (0,),
        x=normal(2),
        y=normal(2),
    ),
    wrong(
        "saturated branch taken for dead",
        with_backward(torch.tanh, lambda g, x: g * (1 - x.tanh() ** 2) * (x.abs() < 3)),
        "x",
        (1,),
        (1,),
        x=at(0.5, 4.0),
    ),
    wrong(
        "not a number where x is zero",
        with_backward(lambda x: x * x.sin(), lambda g, x: g * (x * x.cos() + x * x.sin() / x)),
        "x",
        (0,),
        (0,),
        x=at(0.0, 1.0),
    ),
    wrong(
        "complex gradient not conjugated",
        with_backward(lambda z: z * z, lambda g, z: 2 * g * z),
        "z.imag",
        (0,),
        (0,),
        z=at([1 + 2j], dtype=torch.complex128),
    ),
    wrong("torch's det at a singular matrix", torch.linalg.det, "a", (), (0, 0), a=at([1.0, 2.0], [2.0, 4.0])),
    wrong(
        "running variance counted as constant",
        with_backward(lambda x: x / x.std(), lambda g, x: g / x.std()),
        "x",
        (0,),
        (1,),
        x=uniform(1, 2, 4),
    ),
)
