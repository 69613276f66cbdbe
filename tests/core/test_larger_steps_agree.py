"""Second derivatives behind a saturated sigmoid, which only larger steps show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import double, gradgradcheck


def saturated(x: Tensor) -> Tensor:
    return torch.logit(0.98 * torch.sigmoid(torch.rsqrt(x * x + 1e-5)) + 0.01)


class ScaledSlope(torch.autograd.Function):
    """The vjp of `saturated`; its own derivative by x is multiplied by `factor`."""

    @staticmethod
    def forward(ctx: Any, cotangent: Tensor, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(cotangent, x)
        ctx.factor = factor
        return cotangent * _derivatives(x)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        cotangent, x = ctx.saved_tensors
        first, second = _derivatives(x)
        return grad * first, grad * cotangent * second * ctx.factor, None


class Saturated(torch.autograd.Function):
    """`saturated` with a hand-written backward whose second derivative is multiplied by `factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return saturated(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ScaledSlope.apply(grad, x, ctx.factor), None


def _derivatives(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(saturated(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    return first.detach(), second


@pytest.mark.parametrize("point", [-0.0345158688, 0.04])
@pytest.mark.parametrize("others", [(), (0.5, 1.0, 2.0)], ids=["alone", "beside others"])
def test_claim_that_larger_steps_agree_with_does_not_fail(point: float, others: tuple[float, ...]) -> None:
    assert gradgradcheck(saturated, double([point, *others])).verdict is not Verdict.FAIL


@pytest.mark.parametrize("factor", [1.5, 0.5, -1.0, 0.0])
def test_claim_that_larger_steps_contradict_fails(factor: float) -> None:
    assert gradgradcheck(Saturated.apply, double([-0.0345158688]), factor).verdict is Verdict.FAIL
    assert gradgradcheck(Saturated.apply, double([-0.0345158688]), 1.0).verdict is Verdict.INCONCLUSIVE


def test_wrong_branch_in_a_narrow_region_fails() -> None:
    """A smoothed absolute value has the second derivative 100 for |x| < 0.01, and 0 outside."""

    class Bend(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return grad * (x / 0.01).clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, again: Tensor) -> tuple[Tensor, Tensor]:
            (x,) = ctx.saved_tensors
            return again * (x / 0.01).clamp(-1, 1), torch.zeros_like(x)

    class Smooth(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.where(x.abs() < 0.01, x * x / 0.02, x.abs() - 0.005)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return Bend.apply(grad, *ctx.saved_tensors)

    assert gradgradcheck(Smooth.apply, double([0.004, 0.7])).verdict is Verdict.FAIL
