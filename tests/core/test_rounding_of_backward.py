"""Errors within the rounding on the way to the claims are excused, others fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.core.estimate.column_groups import disjoint_rows
from gradverify.result import Verdict
from tests.core.support import double, gradcheck, gradgradcheck, with_backward

POINT = [100.0, 100.0]
WEIGHTS = double([1.0, 1e-4]).detach()
LARGE = 1e4  # times the first input, added and subtracted again: the result is right to 1e-10


def weighted(derivative: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a weighted sum with the gradient derivative(x)."""
    return with_backward(lambda x: (WEIGHTS * x).sum(), lambda grad, x: grad * derivative(x))


def lost_in_a_sum(x: Tensor) -> Tensor:
    return WEIGHTS + LARGE * x[0] - x[0] / 3 * (3 * LARGE)


def with_constant_error(x: Tensor) -> Tensor:
    return lost_in_a_sum(double(POINT)).detach().expand_as(x)


@pytest.mark.parametrize("derivative", [lost_in_a_sum, with_constant_error])
def test_error_due_to_cancellation_is_undetermined(derivative: Callable[[Tensor], Tensor]) -> None:
    result = gradcheck(weighted(derivative), double(POINT))
    assert (result.verdict, result.undetermined) == (Verdict.INCONCLUSIVE, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda x: torch.where(x == POINT[0], WEIGHTS * (1 + 1e-6), WEIGHTS), id="at the point alone"),
        pytest.param(lambda x: torch.where(x >= POINT[0], WEIGHTS * (1 + 1e-6), WEIGHTS), id="from the point on"),
        pytest.param(lambda x: WEIGHTS * (1 + 1e-6 * (x >= POINT[0]).double().mean()), id="for each on that side"),
    ],
)
def test_error_that_no_rounding_explains_fails(wrong: Callable[[Tensor], Tensor]) -> None:
    assert gradcheck(weighted(wrong), double(POINT)).verdict is Verdict.FAIL


def scaled(x: Tensor, factor: float) -> Tensor:
    """Return x; the vjp of the vjp is multiplied by a factor."""
    again = with_backward(torch.clone, lambda grad, _: factor * grad)
    return with_backward(torch.clone, lambda grad, _: again(grad))(x)


@pytest.mark.parametrize("off", [1e-6, 1e-3])
def test_spread_due_to_a_tie_is_not_rounding(off: float) -> None:
    result = gradgradcheck(lambda x: scaled(x, 1 + off).amax(), double([1.0, 1.0, 1.0]))
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize(("function", "off"), [(torch.log, 1e-5), (lambda x: x**-2, 1e-4)])
def test_spread_due_to_fast_variation_is_not_rounding(function: Callable[[Tensor], Tensor], off: float) -> None:
    result = gradgradcheck(lambda x: function(scaled(x, 1 + off) - 1), double([1 + 1.3e-8]))
    assert result.verdict is Verdict.FAIL


def test_small_error_in_a_quotient_of_small_differences_fails() -> None:
    def forward(x: Tensor) -> Tensor:
        return x[1] / (x[0] - 1)

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * torch.stack([-x[1] / (x[0] - 1) ** 2, (1 + 1e-5) / (x[0] - 1)])

    assert gradcheck(with_backward(forward, backward), double([1 + 1.3e-8, 2.0])).verdict is Verdict.FAIL


def test_grouping_of_rows_ends_where_no_row_is_left() -> None:
    reach, rank = torch.tensor([[0, 1], [2, 3], [1, 3]]), torch.tensor([0, 1, 2])
    assert disjoint_rows(reach, 3, rank, 10**15).tolist() == [0, 0, 1]
    assert disjoint_rows(reach, 3, rank, 1).tolist() == [0, 0, -1]
