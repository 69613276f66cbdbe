"""What backward's answers at points a few ulps apart differ by is not held against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import double, gradcheck

POINT = [100.0, 1e-4]
LARGE = 1e4  # times the first entry, added and taken away again: the second is right to 1e-10 only


def half_the_squares(derivative: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return x**2 / 2, whose backward says this of x."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x / 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * derivative(x)

    return Function.apply


def lost_in_a_sum(x: Tensor) -> Tensor:
    return x + LARGE * x[0] - x[0] / 3 * (3 * LARGE)


def as_far_off(x: Tensor) -> Tensor:
    return x + (lost_in_a_sum(double(POINT)) - double(POINT)).detach()


def test_what_cancellation_loses_is_left_open() -> None:
    result = gradcheck(half_the_squares(lost_in_a_sum), double(POINT))
    assert (result.verdict, result.undetermined) == (Verdict.INCONCLUSIVE, 1)


def test_as_much_lost_everywhere_is_a_mistake() -> None:
    result = gradcheck(half_the_squares(as_far_off), double(POINT))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_what_is_wrong_at_the_point_alone_is_a_mistake() -> None:
    def slope(x: Tensor) -> Tensor:
        return torch.where(x == POINT[1], x * (1 + 1e-6), x)

    result = gradcheck(half_the_squares(slope), double(POINT))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_what_is_wrong_from_the_point_on_is_a_mistake() -> None:
    result = gradcheck(half_the_squares(lambda x: torch.where(x >= POINT[1], x, x * (1 - 1e-6))), double(POINT))
    assert result.verdict is Verdict.PASS
    result = gradcheck(half_the_squares(lambda x: torch.where(x > POINT[1], x, x * (1 - 1e-6))), double(POINT))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
