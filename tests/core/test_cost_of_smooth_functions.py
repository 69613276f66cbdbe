"""The number of forwards that smooth functions take does not grow with the number of entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradverify.result import CheckResult, Verdict
from tests.core.support import away_from_zero, claimed, gradcheck, gradgradcheck, normal

FEW = 8  # forwards, if the points of all samples go through one call
SOME = 12  # forwards by one input, if each sample takes a call of its own

ONE_INPUT = [torch.sin, torch.exp, torch.tanh, lambda x: x * x, lambda x: 3 * x + 1, lambda x: torch.log1p(x * x)]
SEVERAL_INPUTS: list[tuple[Callable[..., Any], int]] = [
    (torch.mul, 2),
    (torch.atan2, 2),
    (torch.hypot, 2),
    (lambda x, y, z: x.exp() * y + z / y, 3),
]


def assert_cheap(result: CheckResult, entries: int, forwards: int) -> None:
    """Assert that all entries pass with few calls."""
    assert (result.verdict, result.entries) == (Verdict.PASS, entries)
    assert result.evaluations.forward <= forwards
    assert result.evaluations.backward <= 2


@pytest.mark.parametrize("function", ONE_INPUT)
@pytest.mark.parametrize(("size", "forwards"), [(1, FEW), (6, FEW), (32, FEW), (1000, FEW), (50_000, SOME)])
def test_elementwise_function_of_one_input(function: Callable[..., Any], size: int, forwards: int) -> None:
    assert_cheap(gradcheck(function, away_from_zero(size)), size * size, forwards)


@pytest.mark.parametrize(("function", "inputs"), SEVERAL_INPUTS)
@pytest.mark.parametrize("size", [5, 32, 700])
def test_elementwise_function_of_several_inputs(function: Callable[..., Any], inputs: int, size: int) -> None:
    result = gradcheck(function, *(away_from_zero(size, seed=seed) for seed in range(inputs)))
    assert_cheap(result, inputs * size * size, FEW if size < 100 else SOME * inputs)


@pytest.mark.parametrize("function", [torch.sin, torch.exp, torch.nn.functional.gelu])
def test_elementwise_function_at_order_2(function: Callable[..., Any]) -> None:
    result = gradgradcheck(function, away_from_zero(300))
    assert (result.verdict, result.entries) == (Verdict.PASS, 2 * 300 * 300)
    # By two inputs, and at the opposite cotangents; each forward of the vjp is one backward.
    assert result.evaluations.backward <= 2 * SOME + 2


def test_slope_near_zero_takes_no_more() -> None:
    x = away_from_zero(1000).detach()
    x[17] = torch.pi / 2 + 4e-6
    assert_cheap(gradcheck(torch.sin, x.requires_grad_()), 1000 * 1000, FEW)


def test_infinite_output_takes_few_more() -> None:
    x = away_from_zero(200).detach().abs()
    x[31] = 0.0
    assert gradcheck(torch.log, x.requires_grad_()).evaluations.forward < 100


def test_noise_of_float32_takes_more_if_its_casts_cannot_be_left_out() -> None:
    """Eight samples say too little about noise, so that the ladder of steps looks at the entries as well."""

    def by_numpy(x: Tensor) -> Tensor:
        return x.new_tensor(np.sin(x.detach().numpy().astype("float32")))

    assert gradcheck(claimed(by_numpy, torch.cos), away_from_zero(200)).evaluations.forward > SOME
    in_float32 = claimed(lambda x: x.float().sin().double(), torch.cos)
    assert gradcheck(in_float32, away_from_zero(200)).evaluations.forward <= SOME


@pytest.mark.slow
def test_kinks_among_a_million_entries_take_few_more() -> None:
    result = gradcheck(torch.relu, normal(1_000_000))
    assert (result.verdict, result.undetermined) == (Verdict.PASS, 0)
    assert result.evaluations.forward <= 20


@pytest.mark.parametrize("distance", [-1e-3, -2e-4, 2e-4, 1e-3])
@pytest.mark.parametrize("function", [torch.relu, torch.abs, lambda x: (x.abs() + 0.1).log(), lambda x: x * x.abs()])
def test_kink_near_one_entry_takes_few_more(function: Callable[[Tensor], Tensor], distance: float) -> None:
    x = away_from_zero(400).detach()
    x[17] = distance
    result = gradcheck(function, x.requires_grad_())
    assert (result.verdict, result.kinks, result.undetermined) == (Verdict.PASS, 0, 0)
    assert result.evaluations.forward <= SOME
