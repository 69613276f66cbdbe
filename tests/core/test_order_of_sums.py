"""Forwards whose last digits differ from call to call, as where atomic additions sum in any order."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import CheckResult, Verdict
from tests.core.support import gradcheck, gradgradcheck, normal

ORDER = random.SystemRandom()  # no seed makes it repeat


def scattered(x: Tensor, index: Tensor, rows: int) -> Tensor:
    order = torch.tensor(ORDER.sample(range(len(index)), len(index)))
    return x.new_zeros(rows, x.shape[1]).index_add(0, index[order], x[order])


def found(factor: float, *, terms: int = 12, width: int = 3, dtype: torch.dtype = torch.float64) -> CheckResult:
    """Check a scatter whose gradient is `factor` times the right one."""
    index = torch.arange(terms) % 3

    class Scatter(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return scattered(x, index, 3)

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> Tensor:
            return factor * cotangent[index]

    return gradcheck(Scatter.apply, normal(terms, width, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("terms", "width"), [(12, 3), (60, 5), (900, 40)])
def test_right_gradient_of_a_sum_in_any_order_passes(terms: int, width: int, dtype: torch.dtype) -> None:
    assert found(1.0, terms=terms, width=width, dtype=dtype).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("terms", "width"), [(12, 3), (60, 5), (900, 40)])
def test_wrong_gradient_of_a_sum_in_any_order_fails(terms: int, width: int, dtype: torch.dtype) -> None:
    assert found(1.01, terms=terms, width=width, dtype=dtype).verdict is Verdict.FAIL


def test_backward_that_sums_in_any_order_passes_at_both_orders() -> None:
    index = torch.arange(12) % 3
    for check in (gradcheck, gradgradcheck):
        assert check(lambda x: scattered(x.sin(), index, 3).cos(), normal(12, 3)).verdict is Verdict.PASS


def test_random_numbers_are_no_rounding() -> None:
    result = gradcheck(lambda x: x * (1 + 1e-9 * ORDER.random()), normal(5))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "random" in result.message
