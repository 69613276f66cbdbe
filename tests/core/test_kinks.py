"""Kinks at and near the point: claims between the slopes pass, and others fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import ElementVerdict, Verdict
from tests.core.support import (
    claimed,
    double,
    elements,
    gradcheck,
    gradgradcheck,
    with_backward,
)

DISTANCES = [1e-12, 1e-8, 1e-5, 1e-3]


def step(x: Tensor) -> Tensor:
    return (x > 1).double()


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("side", [-1, 1])
def test_correct_gradient_close_to_kink_passes(distance: float, side: int) -> None:
    ramp = claimed(lambda x: (x - 1).clamp(min=0), step)
    assert gradcheck(ramp, double([1 + side * distance, 3.0])).verdict is Verdict.PASS


@pytest.mark.parametrize("distance", [1e-8, 1e-5, 1e-3])
@pytest.mark.parametrize("side", [-1, 1])
def test_derivative_of_other_side_close_to_kink_fails(distance: float, side: int) -> None:
    ramp = claimed(lambda x: (x - 1).clamp(min=0), lambda x: 1 - step(x))
    result = gradcheck(ramp, double([1 + side * distance]))
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("value", [0.0, 0.25, 0.5, 1.0])
def test_kink_at_point_accepts_value_between_slopes(value: float) -> None:
    result = gradcheck(claimed(torch.relu, lambda x: torch.full_like(x, value)), double([0.0]))
    assert (result.verdict, result.kinks) == (Verdict.PASS, 1)


@pytest.mark.parametrize("value", [-1e-5, 1 + 1e-5, -0.5, 2.0])
def test_kink_at_point_rejects_value_outside_slopes(value: float) -> None:
    result = gradcheck(claimed(torch.relu, lambda x: torch.full_like(x, value)), double([0.0]))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


@pytest.mark.parametrize(
    "function", [torch.abs, torch.relu, lambda x: x.max(), lambda x: x.sort().values, lambda x: x.norm()]
)
def test_kinks_at_zero_and_at_ties_pass(function: object) -> None:
    assert callable(function)
    result = gradcheck(function, double([0.0, 0.0, 0.0]))
    assert result.verdict is Verdict.PASS
    assert result.kinks > 0


def test_vjp_jump_at_kink_of_forward_counts_as_kink_at_order_2() -> None:
    result = gradgradcheck(torch.relu, double([-1.0, 0.0, 2.0]))
    assert result.verdict is Verdict.PASS
    assert result.kinks > 0


@pytest.mark.parametrize("size", [1e-12, 1e-16, 1e-100, 5e-324])
@pytest.mark.parametrize("function", [torch.relu, torch.abs, torch.nn.functional.selu])
def test_kink_next_to_point_passes_beside_large_inputs(function: Any, size: float) -> None:
    for point in ([size, -2.3, 0.31], [-size, -2.3, 0.31]):
        assert gradcheck(function, double(point)).verdict is Verdict.PASS
        assert gradgradcheck(function, double(point)).verdict is Verdict.PASS


@pytest.mark.parametrize("distance", [1e-12, -1e-12, 1e-10])
def test_value_just_outside_slopes_close_to_kink_fails(distance: float) -> None:
    point = double([3 + distance, 3 - distance])
    for share in (1.01, 1 + 1e-6):
        wrong = claimed(lambda x: (x - 3).abs(), lambda x, share=share: (x - 3).sign() * share)
        result = gradcheck(wrong, point)
        assert (result.verdict, result.mismatched) == (Verdict.FAIL, 2)


def test_straight_through_gradient_in_dead_zone_fails() -> None:
    wrong = claimed(lambda x: torch.nn.functional.softshrink(x, 0.5), torch.ones_like)
    assert gradcheck(wrong, double([0.1, -0.2, 1.0])).mismatched == 2


@pytest.mark.parametrize("distance", [1e-9, 1e-10, 1e-11])
def test_missing_mask_next_to_kink_is_found_beside_ordinary_inputs(distance: float) -> None:
    wrong = claimed(torch.relu, torch.ones_like)
    assert gradcheck(wrong, double([0.7, 1.9, -distance])).mismatched == 1


@pytest.mark.parametrize("width", [1e-1, 1e-2, 1e-4])
@pytest.mark.parametrize("shrink", [torch.nn.functional.softshrink, torch.nn.functional.hardshrink])
def test_single_dead_zone_is_not_a_staircase(shrink: Any, width: float) -> None:
    wrong = claimed(lambda x: shrink(x, width), torch.ones_like)
    assert gradcheck(wrong, double([1.3, -0.4, 0.3 * width, -0.6 * width])).mismatched >= 1


@pytest.mark.parametrize(
    "function", [torch.tanh, torch.nn.functional.softsign, lambda x: x + x**3, lambda x: x.sign() * x.abs().log1p()]
)
def test_zero_gradient_of_function_rising_through_zero_fails(function: Any) -> None:
    result = gradcheck(claimed(function, torch.zeros_like), double([0.0, 0.0]))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 2)
    assert gradcheck(claimed(function, torch.ones_like), double([0.0, 0.0])).verdict is Verdict.PASS


@pytest.mark.slow
@pytest.mark.parametrize("share", [1e-3, 1e-4])
def test_kinks_in_one_input_hide_no_error_in_another(share: float) -> None:
    weights = torch.linspace(-1, 1, 8, dtype=torch.float64)

    def wrong(grad: Tensor, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        ranked = torch.zeros_like(x).scatter_(0, x.argsort(), weights)
        return grad * ranked * z.sin(), (1 + share) * grad * (x.sort().values * weights).sum() * z.cos()

    ranked = with_backward(lambda x, z: (x.sort().values * weights).sum() * z.sin(), wrong)
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        x = (1 + 1e-5 * torch.randn(8, generator=generator, dtype=torch.float64)).requires_grad_()
        assert gradcheck(ranked, x, double(0.7)).verdict is Verdict.FAIL


@pytest.mark.parametrize("function", [torch.norm, torch.std, lambda x: torch.dist(x, x.flip(0))])
def test_all_zero_gradient_at_kink_is_compared(function: Any) -> None:
    assert gradgradcheck(function, double([0.0, 0.0, 0.0])).entries == 12  # 3 gradients by 3 inputs and 1 cotangent


def test_nan_claimed_at_kink_is_compared_with_midpoint_of_slopes() -> None:
    wrong = claimed(torch.abs, lambda x: x / x.abs())
    result = gradcheck(wrong, double([0.0]))
    assert result.verdict is Verdict.FAIL
    (element,) = elements(result, ElementVerdict.MISMATCH)
    assert element.numeric == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_gradient_of_relu_network_passes_at_order_2(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((16, 10), (10, 20), (20, 4))
    inputs = [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]
    assert gradgradcheck(lambda x, w, v: (x @ w).relu() @ v, *inputs).verdict is Verdict.PASS


@pytest.mark.parametrize("apart", [1e-7, 1e-6, 3e-6, 1e-5])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (-1.0, Verdict.FAIL), (0.0, Verdict.FAIL)])
def test_kinks_of_many_inputs_nearby_are_no_noise(apart: float, factor: float, verdict: Verdict) -> None:
    """The loss of predictions near their targets: along a direction that moves all, it has a kink for each."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(100, dtype=torch.float64, generator=generator)
    relative = apart * torch.randn(100, dtype=torch.float64, generator=generator)
    function = with_backward(lambda x: (x - target).abs().sum(), lambda grad, x: factor * grad * (x - target).sign())
    assert gradcheck(function, (target * (1 + relative)).requires_grad_()).verdict is verdict


@pytest.mark.parametrize("apart", [1e-6, 3e-6, 1e-5])
@pytest.mark.parametrize(("slope", "verdict"), [(0.0, Verdict.PASS), (0.5, Verdict.FAIL), (1.0, Verdict.FAIL)])
def test_the_flat_side_of_kinks_nearby_is_no_kink(apart: float, slope: float, verdict: Verdict) -> None:
    """The hinge loss of margins that are just kept."""
    margins = 1 + apart * torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    function = with_backward(lambda x: (1 - x).relu().sum(), lambda grad, x: -slope * grad * torch.ones_like(x))
    assert gradcheck(function, margins.requires_grad_()).verdict is verdict
