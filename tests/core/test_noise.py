"""Noise of the forward hides only errors of its own size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import (
    claimed,
    double,
    gradcheck,
    with_backward,
)


def test_noise_is_measured_in_a_domain_narrower_than_the_samples() -> None:
    """The domain is 6e-7 wide; noise of float32 makes differences within it wrong by per cents."""

    def coarse(x: Tensor) -> Tensor:
        return (1e-13 - (x - 1) ** 2).sqrt().float().double()

    def slope(x: Tensor) -> Tensor:
        return -(x - 1) / (1e-13 - (x - 1) ** 2).sqrt()

    assert gradcheck(claimed(coarse, slope), double([1 + 1e-7])).verdict is not Verdict.FAIL
    for factor in (2.0, 0.0, -1.0):
        wrong = claimed(coarse, lambda x, factor=factor: factor * slope(x))  # type: ignore[misc]
        assert gradcheck(wrong, double([1 + 1e-7])).verdict is Verdict.FAIL


@pytest.mark.parametrize("noise", [1e-11, 1e-7])
def test_noise_excuses_no_error_in_one_term_of_a_sum(noise: float) -> None:
    def shaken(x: Tensor) -> Tensor:
        return x.sin().sum() * (1 + noise * (1e21 * x.sum()).sin())

    x = double([0.3, -1.2, 0.7])
    assert gradcheck(with_backward(shaken, lambda grad, x: grad * x.cos()), x).verdict is Verdict.PASS
    off = torch.tensor([1.05, 1.0, 1.0], dtype=torch.float64)
    assert gradcheck(with_backward(shaken, lambda grad, x: grad * x.cos() * off), x).mismatched == 1


@pytest.mark.parametrize("share", [-1.0, 1.001, 1.1, 1e3])
def test_wrong_gradient_of_float32_forward_is_found_despite_noise(share: float) -> None:
    single = claimed(lambda x: x.float().sin().double(), lambda x: share * x.cos())
    assert gradcheck(single, double([0.3, 1.7, -2.0])).mismatched == 3


def test_ripple_in_one_input_is_not_a_stair_in_another() -> None:
    rippling = with_backward(
        lambda x, t: 1 + x.relu() + 0.01 * (300 * t).sin(),
        lambda grad, x, t: (grad.clone(), 3 * grad * (300 * t).cos()),
    )
    assert gradcheck(rippling, double([-0.3, -0.1]), double([0.8, 1.1])).mismatched == 2
