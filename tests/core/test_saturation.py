"""Saturated functions: second derivatives that only larger steps show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import double, gradgradcheck
from tests.zoo.saturation import Logit


@pytest.mark.parametrize("point", [-0.0345158688, 0.04])
@pytest.mark.parametrize("others", [(), (0.5, 1.0, 2.0)], ids=["alone", "beside others"])
def test_claim_that_larger_steps_agree_with_does_not_fail(point: float, others: tuple[float, ...]) -> None:
    assert gradgradcheck(Logit.apply, double([point, *others]), 1.0).verdict is not Verdict.FAIL


@pytest.mark.parametrize("factor", [1.5, 0.5, -1.0, 0.0])
def test_claim_that_larger_steps_contradict_fails(factor: float) -> None:
    assert gradgradcheck(Logit.apply, double([-0.0345158688]), factor).verdict is Verdict.FAIL
    assert gradgradcheck(Logit.apply, double([-0.0345158688]), 1.0).verdict is Verdict.INCONCLUSIVE


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
