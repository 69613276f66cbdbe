"""Ties: kinks that do not show along any single input.

If several inputs are equal, a sorted or ranked output depends on all of them. Its gradient belongs to one order of the
inputs, and changing one input alone does not produce every order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.zoo.specimen import Draw, Specimen, at, fixed, specimen
from tests.zoo.wrong import Wrong, with_backward, wrong

_T = "tie"


def all_equal(*shape: int, value: float = 1.0, dtype: torch.dtype = torch.float64) -> Draw:
    """Return a draw with the same number in every entry."""
    return lambda generator: torch.full(shape, value, dtype=dtype).requires_grad_()


def _eye(size: int) -> Draw:
    return lambda generator: torch.eye(size, dtype=torch.float64).requires_grad_()


def _halves(count: int, seed: int) -> Draw:
    """Return a draw of multiples of one half, many of them equal, the same for every seed of the run."""

    def draw(generator: torch.Generator) -> Tensor:
        own = torch.Generator().manual_seed(seed)
        return ((4 * torch.randn(count, generator=own, dtype=torch.float64)).round() / 2).requires_grad_()

    return draw


def _tied(*shape: int, seed: int = 0) -> Draw:
    """Return a draw of zeros, ones and twos, the same for every seed of the run."""

    def draw(generator: torch.Generator) -> Tensor:
        own = torch.Generator().manual_seed(seed)
        return torch.randint(3, shape, generator=own).double().requires_grad_()

    return draw


def _window_of_three_relus(x: Tensor) -> Tensor:
    """Return the sum of each relu and its two neighbours, with one more input in output 8."""
    kept = x.relu()
    zero = kept.new_zeros(1)
    summed = kept + torch.cat([kept[1:], zero]) + torch.cat([zero, kept[:-1]])
    return summed + 5 * x[3] * (torch.arange(len(x)) == 8)


def _without_the_one_more(g: Tensor, x: Tensor) -> Tensor:
    zero = g.new_zeros(1)
    return (g + torch.cat([g[1:], zero]) + torch.cat([zero, g[:-1]])) * (x > 0)


def _symmetric(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda a: function((a + a.mT) / 2)


def _half_of_two(g: Tensor, x: Tensor) -> Tensor:
    gradient = torch.zeros_like(x)
    gradient[4], gradient[5] = 0.35 * g, 0.15 * g  # half of a right gradient
    return gradient


_PLACES = fixed(-6.0, -5.0, 0.3, 5.0, 5.5, dtype=torch.float64)
TIES: tuple[Specimen, ...] = (
    specimen("sort of zeros", lambda x: x.sort().values, _T, x=all_equal(3, value=0.0)),
    specimen("sort of six equals", lambda x: x.sort().values, _T, x=all_equal(6)),
    specimen("sort of 30 with ties", lambda x: x.sort().values, _T, x=_tied(30)),
    specimen("median of seven zeros", torch.median, _T, "open at order 2", x=all_equal(7, value=0.0)),
    specimen("largest three of five equals", lambda x: x.topk(3).values, _T, x=all_equal(5)),
    specimen("gaps of sorted ties", lambda x: x.sort().values.diff(), _T, x=at(2, 0, 2, 0, 1, 0, 1, 1, 1, 0)),
    specimen(
        "clamped minimum of zeros", lambda x: x.amin().clamp(min=0), _T, "open at order 2", x=all_equal(8, value=0.0)
    ),
    specimen("eigenvalues of the identity", _symmetric(torch.linalg.eigvalsh), _T, "wrong at order 2", a=_eye(3)),
    specimen("singular values of the identity", _symmetric(torch.linalg.svdvals), _T, "wrong at order 2", a=_eye(4)),
    specimen(
        "maxima of five and of two equals", lambda x: x.amax() - x[:2].amax(), _T, "open at order 2", x=all_equal(5)
    ),
    specimen(
        "maxima of overlapping equals", lambda x: x[3:].amax() - x[:4].amax(), _T, "open at order 2", x=all_equal(8)
    ),
    specimen("quantile of equals", lambda x: x.quantile(0.3), _T, "open at order 2", x=all_equal(20, value=1.5)),
    specimen("middle of two among 20 equals", lambda x: x.quantile(0.5), _T, "open at order 2", x=all_equal(20)),
    specimen("medians of equal columns", lambda x: x.median(0)[0], _T, "open at order 2", x=all_equal(20, 4)),
    specimen("third of each equal column", lambda x: x.kthvalue(3, 0)[0], _T, "open at order 2", x=all_equal(20, 4)),
    specimen("40th of 120 equals", lambda x: x.kthvalue(40)[0], _T, "open at order 2", x=all_equal(120)),
    specimen("largest 25 of 50 equals", lambda x: x.topk(25)[0], _T, x=all_equal(50)),
    specimen(
        "saturated distance to a tied median",
        lambda x, p: (p - x.median()).tanh(),
        _T,
        "open at order 2",
        x=_halves(30, 2),
        p=_PLACES,
    ),
    specimen(
        "nearest of a cloud with ties",
        lambda x, y: torch.cdist(x, y).amin(1).sum(),
        _T,
        x=_tied(5, 2),
        y=_tied(6, 2, seed=1),
    ),
    specimen(
        "renorm of a row of length one", lambda x: x.renorm(2, 0, 1.0), _T, "order 2", "borderline", x=at([[1.0, 0.0]])
    ),
    specimen(
        "renorm of rows of length one and five",
        lambda x: x.renorm(2, 0, 1.0),
        _T,
        "order 2",
        "borderline",
        x=at([1.0, 0.0], [3.0, 4.0]),
    ),
    specimen("float32 sort of equals", lambda x: x.sort().values, _T, "float32", x=all_equal(6, dtype=torch.float32)),
    specimen(
        "float32 median of zeros",
        torch.median,
        _T,
        "open at order 2",
        "float32",
        x=all_equal(7, value=0.0, dtype=torch.float32),
    ),
    specimen(
        "bfloat16 sort of equals",
        lambda x: x.sort().values,
        _T,
        "open at order 2",
        "bfloat16",
        x=all_equal(6, dtype=torch.bfloat16),
    ),
    specimen(
        "bfloat16 median of zeros",
        torch.median,
        _T,
        "open at order 2",
        "bfloat16",
        x=all_equal(7, value=0.0, dtype=torch.bfloat16),
    ),
)

WRONG_TIES: tuple[Wrong, ...] = (
    wrong(
        "sort of equals, doubled",
        with_backward(lambda x: x.sort().values, lambda g, x: 2 * g),
        "x",
        (0,),
        (0,),
        _T,
        x=all_equal(5),
    ),
    wrong(
        "sort of equals, negated",
        with_backward(lambda x: x.sort().values, lambda g, x: -g),
        "x",
        (0,),
        (0,),
        _T,
        x=all_equal(6),
    ),
    wrong(
        "window of three relus at zero, one more input left out",
        with_backward(_window_of_three_relus, _without_the_one_more),
        "x",
        (8,),
        (3,),
        _T,
        x=all_equal(64, value=0.0),
    ),
    wrong(
        "quantile of equals, halved",
        with_backward(lambda x: x.quantile(0.3), _half_of_two),
        "x",
        (),
        (5,),
        _T,
        x=all_equal(20, value=1.5),
    ),
)
