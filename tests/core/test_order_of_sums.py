"""Forwards whose last digits differ from call to call, as where atomic additions sum in any order."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import CheckResult, Verdict
from tests.core.support import gradcheck, gradgradcheck, normal

Draws = random.Random  # of its own, so that seeding torch, NumPy or Python makes no forward repeat


def scattered(x: Tensor, index: Tensor, draws: Draws) -> Tensor:
    order = torch.tensor(draws.sample(range(len(index)), len(index)))
    return x.new_zeros(3, x.shape[1]).index_add(0, index[order], x[order])


def found(factor: float, *, terms: int = 12, width: int = 3, dtype: torch.dtype = torch.float64) -> CheckResult:
    """Check a scatter whose gradient is `factor` times the right one."""
    index, draws = torch.arange(terms) % 3, Draws(0)

    class Scatter(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return scattered(x, index, draws)

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
    index, draws = torch.arange(12) % 3, Draws(0)
    for check in (gradcheck, gradgradcheck):
        assert check(lambda x: scattered(x.sin(), index, draws).cos(), normal(12, 3)).verdict is Verdict.PASS


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_branches_that_depend_on_the_order_accuse_nobody(dtype: torch.dtype, seed: int) -> None:
    index, draws = torch.arange(48) % 3, Draws(seed)
    result = gradcheck(lambda x: scattered(x, index, draws).sort(dim=1).values, normal(48, 8, seed=seed, dtype=dtype))
    assert result.verdict is not Verdict.FAIL


def test_a_forward_without_outputs_that_needs_a_graph_is_not_compared() -> None:
    def empty(x: Tensor) -> Tensor:
        assert torch.is_grad_enabled()
        return x[:0] * 2

    assert "nothing was compared" in gradcheck(empty, normal(3)).message


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e-9), (torch.float16, 3e-2), (torch.bfloat16, 0.1)])
def test_random_numbers_are_no_rounding(dtype: torch.dtype, size: float) -> None:
    draws = Draws(0)
    result = gradcheck(lambda x: x * (1 + size * draws.random()), normal(5, dtype=dtype))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "random" in result.message
