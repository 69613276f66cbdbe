"""Kinks that no coordinate axis shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import gradcheck, gradgradcheck, normal, with_backward


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
    x = torch.ones(6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(function, x).verdict is Verdict.PASS
    assert gradcheck(with_backward(function, lambda g, x: 3 * g.expand_as(x)), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("rows", [[[1.0, 0.0]], [[1.0, 0.0], [3.0, 4.0]], [[0.6, 0.8], [1.0, 0.0], [3.0, 4.0]]])
def test_gradient_with_an_oblique_jump_accepts_the_slope_of_either_side(rows: list[list[float]]) -> None:
    x = torch.tensor(
        rows, dtype=torch.float64, requires_grad=True
    )  # some rows have the maximal norm and lie on an axis
    assert gradgradcheck(lambda x: x.renorm(2, 0, 1.0), x).verdict is Verdict.PASS


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_tie_in_one_output_does_not_excuse_another(seed: int) -> None:
    x = normal(2, 3, seed=seed).detach().round().requires_grad_()

    def both(x: Tensor, claimed: Tensor) -> Tensor:
        return torch.cat([x.float().flatten().sort().values, claimed.float().exp().sum().unsqueeze(0)])

    result = gradcheck(lambda x: both(x, x.detach()), x)
    assert (result.verdict, result.mismatched >= 6) == (Verdict.FAIL, True)
