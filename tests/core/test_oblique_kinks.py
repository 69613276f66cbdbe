"""Kinks that no coordinate axis shows, and rounding errors that look like one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import gradcheck, gradgradcheck, with_backward


def drawn(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    """Return normal random numbers that require grad."""
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()


def pseudo_huber(place: int, error: float) -> Callable[..., Any]:
    """Return √(1 + x²) - 1, which cancels near zero, with one wrong entry in its gradient."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        slope = x / torch.sqrt(1 + x * x)
        slope[place] *= 1 + error
        return g * slope

    return with_backward(lambda x: torch.sqrt(1 + x * x) - 1, backward)


@pytest.mark.parametrize(
    ("size", "seed", "scale", "place", "error"),
    [(1, 91, 0.01, 0, 1e-2), (64, 85, 1.0, 21, 1e-3), (32, 1114, 1.0, 4, 3e-5), (32, 1193, 1.0, 21, 2e-2)],
)
def test_rounding_of_an_output_that_cancels_is_no_kink(
    size: int, seed: int, scale: float, place: int, error: float
) -> None:
    x = drawn(size, seed=seed, scale=scale)
    wrong = gradcheck(pseudo_huber(place, error), x)
    assert (wrong.verdict, wrong.mismatched, wrong.kinks) == (Verdict.FAIL, 1, 0)
    right = gradcheck(pseudo_huber(place, 0.0), x)
    assert (right.verdict, right.kinks) == (Verdict.PASS, 0)


class ScaledSlope(torch.autograd.Function):
    """The vjp of tanh; one entry of each of its own two derivatives is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, by: tuple[float, float]) -> Tensor:
        ctx.save_for_backward(g, x)
        ctx.by = by
        return g * (1 - x.tanh() ** 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        g, x = ctx.saved_tensors
        slope = 1 - x.tanh() ** 2
        of_g, of_x = grad * slope, -2 * grad * g * x.tanh() * slope
        of_x[_PLACE] *= ctx.by[0]
        of_g[_PLACE] *= ctx.by[1]
        return of_g, of_x, None


class Tanh(torch.autograd.Function):
    """tanh with a vjp that has a hand-written derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: tuple[float, float]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.by = by
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ScaledSlope.apply(grad, *ctx.saved_tensors, ctx.by), None


_PLACE = 14


@pytest.mark.parametrize("saturated", [5.24, 6.06])
@pytest.mark.parametrize("by", [(0.99, 1.0), (1.0, 0.9), (1.0, 0.0), (1.0, 1.1)])
def test_rounding_in_a_saturated_second_derivative_is_no_kink(saturated: float, by: tuple[float, float]) -> None:
    with torch.no_grad():
        x = drawn(16, seed=0)
        x[_PLACE] = saturated
    wrong = gradgradcheck(lambda x: Tanh.apply(x, by), x)
    assert (wrong.verdict, wrong.mismatched, wrong.kinks) == (Verdict.FAIL, 1, 0)
    assert gradgradcheck(lambda x: Tanh.apply(x, (1.0, 1.0)), x).verdict is Verdict.PASS


class StepVjp(torch.autograd.Function):
    """The vjp of relu; its derivative by the cotangent is `at_zero` at x = 0."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, at_zero: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.at_zero = at_zero
        return g * (x > 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * torch.where(x == 0, ctx.at_zero, (x > 0).double()), torch.zeros_like(x), None


class Relu(torch.autograd.Function):
    """relu with the vjp `Step`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at_zero: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.at_zero = at_zero
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return StepVjp.apply(grad, *ctx.saved_tensors, ctx.at_zero), None


@pytest.mark.parametrize("values", [[0.0], [0.0, 1.0, -2.0], [0.0, 0.0, *[1.0, -1.0] * 20]])
@pytest.mark.parametrize("at_zero", [0.123, 1.0])
def test_wrong_derivative_by_the_cotangent_fails_at_a_jump_of_the_gradient(values: list[float], at_zero: float) -> None:
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    wrong = gradgradcheck(lambda x: Relu.apply(x, at_zero), x)
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, values.count(0.0))
    assert gradgradcheck(lambda x: Relu.apply(x, 0.0), x).verdict is Verdict.PASS


@pytest.mark.parametrize("function", [lambda x: x.sort().values, lambda x: (x - x.flip(0)).abs(), torch.linalg.norm])
def test_right_gradients_pass_at_oblique_kinks(function: Callable[..., Any]) -> None:
    assert gradcheck(function, torch.ones(6, dtype=torch.float64, requires_grad=True)).verdict is Verdict.PASS


@pytest.mark.parametrize("rows", [[[1.0, 0.0]], [[1.0, 0.0], [3.0, 4.0]], [[0.6, 0.8], [1.0, 0.0], [3.0, 4.0]]])
def test_gradient_with_an_oblique_jump_accepts_the_slope_of_either_side(rows: list[list[float]]) -> None:
    x = torch.tensor(
        rows, dtype=torch.float64, requires_grad=True
    )  # some rows have the maximal norm and lie on an axis
    assert gradgradcheck(lambda x: x.renorm(2, 0, 1.0), x).verdict is Verdict.PASS


def all_equal(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64, requires_grad=True)


def scaled(function: Callable[[Tensor], Tensor], factor: float) -> Callable[[Tensor], Tensor]:
    """Return the function with its gradient multiplied by a factor."""
    wrong = with_backward(torch.clone, lambda g, _: g * factor)
    return lambda x: function(wrong(x))


ORDER_STATISTICS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "medians of columns": (lambda x: x.median(0)[0], all_equal(40, 8)),
    "the third of each column": (lambda x: x.kthvalue(3, 0)[0], all_equal(40, 8)),
    "a third of the way up": (lambda x: x.kthvalue(66)[0], all_equal(200)),
    "the middle of two": (lambda x: x.quantile(0.5), all_equal(32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDER_STATISTICS)
def test_order_statistics_of_many_tied_inputs(name: str) -> None:
    function, x = ORDER_STATISTICS[name]
    assert gradcheck(function, x).verdict is Verdict.PASS
    for factor in (2.0, -1.0):
        assert gradcheck(scaled(function, factor), x).verdict is Verdict.FAIL


@pytest.mark.slow
def test_too_many_tied_ranks_are_inconclusive() -> None:
    assert gradcheck(lambda x: x.topk(100)[0], all_equal(200)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 7, 9])
def test_median_of_tied_inputs_in_a_saturated_output(seed: int) -> None:
    """An output of 1 - 1e-5 hides a slope of 1e-5 in noise at the steps that separate the pieces."""
    generator = torch.Generator().manual_seed(seed)
    x = ((torch.randn(30, dtype=torch.float64, generator=generator) * 4).round() / 2).requires_grad_()
    at = torch.tensor([-6.0, -5.0, 0.3, 5.0, 5.5], dtype=torch.float64)
    assert gradcheck(lambda x: torch.tanh(at - x.median()), x).mismatched == 0
    assert gradcheck(scaled(lambda x: torch.tanh(at - x.median()), 2.0), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_tie_in_one_output_does_not_excuse_another(seed: int) -> None:
    x = drawn(2, 3, seed=seed).detach().round().requires_grad_()

    def both(x: Tensor, claimed: Tensor) -> Tensor:
        return torch.cat([x.float().flatten().sort().values, claimed.float().exp().sum().unsqueeze(0)])

    result = gradcheck(lambda x: both(x, x.detach()), x)
    assert (result.verdict, result.mismatched >= 6) == (Verdict.FAIL, True)
