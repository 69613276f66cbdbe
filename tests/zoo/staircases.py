"""Staircase forwards with the gradient of the function they approximate, and backwards with cancellation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.zoo.specimen import Specimen, at, fixed, normal, specimen
from tests.zoo.wrong import Wrong, with_backward, wrong

_S, _C = "staircase", "cancellation"
_COARSE = "small steps show stairs, large ones the slope that is claimed"
_LOST = "backward cancels, and rounding of its input changes its answer by more than is allowed"
_WEIGHTS = (1.0, 1e-4)
_APART = (0.3, 0.5, 0.7, 0.9, 1.1, 1.3)


def _rounded(step: float) -> Callable[[Tensor], Tensor]:
    """Return x rounded to multiples of the step, with the gradient of the identity."""
    return with_backward(lambda x: (x / step).round() * step, lambda g, x: g)


def _floored(step: float) -> Callable[[Tensor], Tensor]:
    return with_backward(lambda x: (x / step).floor() * step, lambda g, x: g)


def _cast(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return with_backward(lambda x: x.to(dtype).sin().to(x.dtype), lambda g, x: g * x.cos())


def _copied(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers in another dtype by a copy, which no cast shows, as in a kernel of an extension."""
    return torch.empty(x.shape, dtype=dtype, device=x.device).copy_(x.detach())


def _by_a_copy(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return with_backward(lambda x: _copied(x, dtype).sin().to(x.dtype), lambda g, x: g * x.cos())


def _weighted(x: Tensor) -> Tensor:
    return (x * x.new_tensor(_WEIGHTS)).sum()


def _lost_in_a_sum(g: Tensor, x: Tensor) -> Tensor:
    """Return the gradient with 1e4 times the first input added and subtracted, which rounds it."""
    return g * (x.new_tensor(_WEIGHTS) + 1e4 * x[0] - x[0] / 3 * (3 * 1e4))


def _off_at_the_point(g: Tensor, x: Tensor) -> Tensor:
    return g * x.new_tensor(_WEIGHTS) * torch.where(x == 100.0, 1 + 1e-6, 1.0)


STAIRCASES: tuple[Specimen, ...] = (
    specimen("rounded to fiftieths", _rounded(0.02), _S, x=normal(4, 5), inconclusive=_COARSE),
    specimen("floored to fiftieths", _floored(0.02), _S, x=normal(4, 5), inconclusive=_COARSE),
    specimen(
        "rounded to fiftieths, float32",
        _rounded(0.02),
        _S,
        "float32",
        x=normal(4, 5, dtype=torch.float32),
        inconclusive=_COARSE,
    ),
    specimen("sine in bfloat16 inside", _cast(torch.bfloat16), _S, x=normal(4, 5)),
    specimen("sine in float16 inside", _cast(torch.float16), _S, x=normal(4, 5)),
    specimen("sine in float16 by a copy", _by_a_copy(torch.float16), _S, x=normal(4, 5), inconclusive=_COARSE),
    specimen("sine in float32 by a copy", _by_a_copy(torch.float32), _S, x=normal(4, 5)),
    specimen(
        "backward that cancels", with_backward(_weighted, _lost_in_a_sum), _C, x=at(100.0, 100.0), inconclusive=_LOST
    ),
    specimen(
        "zeros, claimed as 1e-17 of x", with_backward(torch.zeros_like, lambda g, x: 1e-17 * g * x), _C, x=at(1.0, 2.0)
    ),
)

WRONG_STAIRCASES: tuple[Wrong, ...] = (
    wrong(
        "two roundings, one with the wrong sign",
        with_backward(
            lambda x: torch.cat([(x / 0.014).round() * 0.014, (x / 0.1).round() * 0.1]), lambda g, x: g[:1] - g[1:]
        ),
        "x",
        (1,),
        (0,),
        _C,
        x=at([0.8]),
    ),
    wrong("rounded to whole numbers", _rounded(1.0), "x", (0, 0), (0, 0), _S, x=normal(4, 5)),
    wrong("floored to thirds", _floored(0.3), "x", (0, 0), (0, 0), _S, x=normal(4, 5)),
    wrong(
        "sigmoid in float32 inside left out of the gradient",
        with_backward(lambda x: x.sin() + x.float().sigmoid().double(), lambda g, x: g * x.cos()),
        "x",
        (0,),
        (0,),
        _S,
        x=at(-1.0, 0.1, 1.3),
    ),
    wrong(
        "sigmoid in float32 by a copy left out of the gradient",
        with_backward(
            lambda x: x.sin() + _copied(x, torch.float32).sigmoid().to(x.dtype),
            lambda g, x: g * x.cos(),
        ),
        "x",
        (0,),
        (0,),
        _S,
        x=at(-1.0, 0.1, 1.3),
    ),
    wrong(
        "term beside a million left out of the gradient",
        with_backward(lambda x: ((x + 1e6) - 1e6) + 0.1 * x, lambda g, x: 0.1 * g),
        "x",
        (0,),
        (0,),
        _C,
        x=at(-1.0, 0.1, 1.3),
    ),
    wrong(
        "weights off by 1e-6 at the point",
        with_backward(_weighted, _off_at_the_point),
        "x",
        (),
        (0,),
        _C,
        x=at(100.0, 100.0),
    ),
    wrong(
        "off by 1e-6 where the output is off by an ulp",
        with_backward(
            lambda x, point: 0.04 * x.sin() + 2e-16 * (x == point),
            lambda g, x, _: (g * 0.04 * x.cos() * (1 + 1e-6), None),
        ),
        "x",
        (0,),
        (0,),
        _C,
        x=at(*_APART),
        point=fixed(*_APART, dtype=torch.float64),
    ),
)
