"""Stairs: wide ones have the derivative zero, those of rounding the derivative of the function that is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import (
    claimed,
    double,
    gradcheck,
    gradgradcheck,
    normal,
)


@pytest.mark.parametrize("width", [0.1, 1e-3])
def test_zero_gradient_on_narrow_stair_does_not_fail(width: float) -> None:
    stairs = claimed(lambda x: torch.trunc(x / width), torch.zeros_like)
    assert gradcheck(stairs, double([1.234567, -3.1415926])).verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)


def test_zero_gradient_of_float32_forward_fails() -> None:
    result = gradcheck(claimed(lambda x: x.float().sin().double(), torch.zeros_like), double([0.7, 1.1]))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 2)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_on_the_way_passes(precision: torch.dtype) -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q.to(precision) @ k.to(precision).mT).softmax(-1)
        return (weights @ v.to(precision)).double()

    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (5, 4), (5, 2))]
        assert gradcheck(attention, *(each.requires_grad_() for each in inputs)).verdict is Verdict.PASS


def test_point_on_float32_stair_is_not_in_dead_zone() -> None:
    def loss(x: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction="none")

    for value in (4.0, 8.0, 10.0):
        assert gradgradcheck(loss, torch.tensor([value], requires_grad=True)).verdict is Verdict.PASS


def test_zero_gradient_of_stairs_does_not_fail() -> None:
    def stairs(x: Tensor) -> Tensor:
        return torch.round(2**12 * x) / 2**12

    assert gradcheck(claimed(stairs, torch.zeros_like), double([0.0, 0.0])).verdict in (
        Verdict.PASS,
        Verdict.INCONCLUSIVE,
    )


@pytest.mark.parametrize(("step", "verdict"), [(1.0, Verdict.FAIL), (0.3, Verdict.FAIL), (0.02, Verdict.INCONCLUSIVE)])
@pytest.mark.parametrize("seed", range(3))
def test_verdict_on_stairs_does_not_depend_on_the_point(step: float, verdict: Verdict, seed: int) -> None:
    x = normal(4, 5, seed=seed)
    for stairs in (lambda x: (x / step).round() * step, lambda x: (x / step).floor() * step):
        assert gradcheck(claimed(stairs, torch.ones_like), x).verdict is verdict


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("function", [np.exp, np.tanh, lambda x: x**3])
def test_zero_gradient_of_hidden_half_precision_does_not_pass(function: Callable[..., Any], seed: int) -> None:
    x = normal(3, seed=seed)

    def rounded(x: Tensor) -> Tensor:
        return torch.from_numpy(function(x.detach().numpy().astype("float16").astype("float64")).cumsum())

    assert gradcheck(claimed(rounded, torch.zeros_like), x).verdict is not Verdict.PASS


@pytest.mark.slow
def test_zero_gradient_of_rounded_mantissa_rarely_passes() -> None:
    def short(x: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)

    points = torch.rand(24, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 4 - 2
    verdicts = [gradcheck(claimed(short, torch.zeros_like), x.clone().requires_grad_()).verdict for x in points]
    assert verdicts.count(Verdict.PASS) <= 1


@pytest.mark.parametrize("scale", [1e3, 1e5])
def test_zero_gradient_of_truncation_does_not_fail(scale: float) -> None:
    x = torch.tensor([0.10542046159923193, 1.04783090398278, -0.71], dtype=torch.float64, requires_grad=True)
    assert gradcheck(claimed(lambda x: torch.trunc(scale * x), torch.zeros_like), x).mismatched == 0


@pytest.mark.parametrize("slope", [0.0, 1.0, 2.0])
def test_closer_steps_do_not_report_slope_of_single_stair(slope: float) -> None:
    def stairs(x: Tensor) -> Tensor:
        return torch.round(x * 2**12) / 2**12 + x

    result = gradcheck(claimed(stairs, lambda x: torch.full_like(x, slope)), double([0.7, -1.3]))
    assert (result.verdict is Verdict.PASS) == (slope == 1.0)
