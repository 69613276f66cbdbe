"""Infinite derivatives beside finite ones: 0 times infinity is NaN and spreads to unrelated rows."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.zoo.specimen import Specimen, at, fixed, specimen
from tests.zoo.wrong import Wrong, with_backward, wrong

_I = "infinite derivative"
_REASON = "one derivative is infinite, or the forward is not finite"
_SINGLE, _BRAIN = torch.float32, torch.bfloat16
_ENDLESS = "difference quotients grow with the logarithm of the step, down to the smallest"
_FACTORS = fixed(1.0, 2.0, -3.0, dtype=torch.float64)


def _beside_others(x: Tensor, factors: Tensor) -> Tensor:
    return torch.cat([x.sqrt(), factors * x, x.sum().reshape(1)])


def _entropy(x: Tensor, guard: float) -> Tensor:
    return -(x * torch.log(x + guard)).sum()


def _root_wrong_at_2(g: Tensor, x: Tensor) -> Tensor:
    return g * 0.5 / x.sqrt() * torch.where(x == 2.0, 1 + 1e-6, 1.0)


INFINITE: tuple[Specimen, ...] = (
    specimen("sqrt of zero beside others", torch.sqrt, _I, x=at(0.0, 1.0, 2.0), inconclusive=_REASON),
    specimen("reciprocal of zero beside others", torch.reciprocal, _I, x=at(0.0, 1.0, 2.0), inconclusive=_REASON),
    specimen("log of zero beside others", torch.log, _I, x=at(0.0, 1.0, 2.0), inconclusive=_REASON),
    specimen("power 0.5 of zero beside others", lambda x: x**0.5, _I, x=at(0.0, 1.0, 2.0), inconclusive=_REASON),
    specimen(
        "sqrt of zero in a larger output", _beside_others, _I, x=at(0.0, 1.0, 2.0), f=_FACTORS, inconclusive=_REASON
    ),
    specimen(
        "x log(|x| + 1e-30) at zero",
        lambda x: x * torch.log(x.abs() + 1e-30),
        _I,
        x=at(0.0, 0.25, 0.75),
        inconclusive=_ENDLESS,
    ),
    specimen(
        "entropy of zero, guarded by 1e-38", _entropy, _I, x=at(0.0, 0.25, 0.75), guard=1e-38, inconclusive=_ENDLESS
    ),
    specimen(
        "powers of negative bases",
        lambda x, bases: bases**x,
        _I,
        x=at([0.5]),
        bases=fixed(2.0, -3.0, 4.0, dtype=torch.float64),
        inconclusive="one output is NaN",
    ),
    specimen(
        "float32 sqrt of zero beside others",
        torch.sqrt,
        _I,
        "float32",
        x=at(0.0, 1.0, 2.0, dtype=_SINGLE),
        inconclusive=_REASON,
    ),
    specimen(
        "bfloat16 sqrt of zero beside others",
        torch.sqrt,
        _I,
        "bfloat16",
        x=at(0.0, 1.0, 2.0, dtype=_BRAIN),
        inconclusive=_REASON,
    ),
)

WRONG_INFINITE: tuple[Wrong, ...] = (
    wrong(
        "sqrt, wrong beside an infinite derivative",
        with_backward(torch.sqrt, _root_wrong_at_2),
        "x",
        (2,),
        (2,),
        _I,
        x=at(0.0, 1.0, 2.0),
    ),
    wrong(
        "sine with NaN at zero",
        with_backward(torch.sin, lambda g, x: g * torch.where(x == 0, torch.nan, x.cos())),
        "x",
        (0,),
        (0,),
        _I,
        x=at(0.0, 1.0, 2.0),
    ),
)
