"""Functions that vary within the steps: no right gradient fails, and no wrong one hides in what looks like noise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.result import ElementVerdict, Verdict
from tests.core.support import claimed, double, elements, gradcheck, with_backward


@pytest.mark.parametrize("speed", [1e9, 1e12, 1e14, 1e18])
def test_function_that_varies_too_quickly_for_any_step_is_inconclusive(speed: float) -> None:
    fast = claimed(lambda x: torch.sin(1e3 * torch.sin(speed * x)), lambda x: _slope_of_waves(x, speed))
    for seed in range(5):
        x = torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert gradcheck(fast, x.requires_grad_()).verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("speed", [1e2, 1e3, 1e4, 1e5, 1e6])
def test_zero_claimed_for_quickly_varying_function_is_found(speed: float, place: int) -> None:
    def partly(grad: Tensor, x: Tensor) -> Tensor:
        rising = speed * grad * (speed * x).cos() / (2 + (speed * x).sin())
        return torch.where(torch.arange(3) == place, 0.0, rising)

    wrong = with_backward(lambda x: (2 + (speed * x).sin()).log().sum(), partly)
    for seed in range(3):
        x = 100 * torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert gradcheck(wrong, x.requires_grad_()).mismatched == 1


@pytest.mark.parametrize("share", [-1.0, 1.001, 2.0])
def test_wrong_slope_of_step_steep_only_at_the_point_fails(share: float) -> None:
    wrong = claimed(lambda x: x / x.abs().clamp(min=1e-12), lambda x: share * 1e12 * (x.abs() < 1e-12))
    assert gradcheck(wrong, double([0.0])).verdict is Verdict.FAIL


def _slope_of_waves(x: Tensor, speed: float) -> Tensor:
    return 1e3 * speed * torch.cos(speed * x) * torch.cos(1e3 * torch.sin(speed * x))


@pytest.mark.slow
# Far from zero, where the samples of noise lie many periods of the ripple apart.
@pytest.mark.parametrize("place", [-1.39051e6, 1.18743e6, 1772.06, 49965.3])
@pytest.mark.parametrize("rise", [0.01, 30.0])
def test_ripple_on_a_slope_does_not_count_as_noise(place: float, rise: float) -> None:
    def slope(x: Tensor) -> Tensor:
        return rise + (200 * x).sin()

    def rippled(x: Tensor) -> Tensor:
        return rise * x + (100 * x).sin().square() / 100

    assert gradcheck(claimed(rippled, slope), double([place])).verdict is not Verdict.FAIL
    for share in (0.0, 0.99, 1.01, -1.0):
        wrong = claimed(rippled, lambda x, share=share: share * slope(x))  # type: ignore[misc]
        assert gradcheck(wrong, double([place])).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("fast", "slope"),
    [
        (torch.exp, torch.exp),
        (lambda x: (-x).exp(), lambda x: -(-x).exp()),
        (lambda x: 1e-13 * (40 * x).sin(), lambda x: 4e-12 * (40 * x).cos()),
    ],
)
@pytest.mark.parametrize("value", [33.4, -33.4])
def test_variation_too_fast_for_the_samples_is_not_noise(
    fast: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], value: float
) -> None:
    assert gradcheck(claimed(fast, slope), double([value])).verdict is Verdict.PASS
    assert gradcheck(claimed(fast, lambda x: (1 + 1e-6) * slope(x)), double([value])).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("x", [4.745931004809948, 3.3, 0.61, 1.7, 8.4, 33.3])
def test_quick_variation_is_not_taken_for_rounding(x: float) -> None:
    """The fractional part looks like noise at many distances, a million times that of float32's stairs."""
    point = torch.tensor([x], dtype=torch.float64, requires_grad=True)
    for sawtooth in (lambda x: x.square().float().double().frac(), lambda x: (19.3 * x).float().double().frac()):
        assert gradcheck(sawtooth, point).mismatched == 0
        (right,) = torch.autograd.grad(sawtooth(point), point)
        twice = gradcheck(claimed(sawtooth, lambda x: 2 * right), point)  # noqa: B023
        assert twice.verdict is not Verdict.PASS


def test_function_that_varies_too_quickly_is_not_reported_as_jump() -> None:
    result = gradcheck(lambda x: torch.sin(1e11 * x), double([0.7]))
    assert not elements(result, ElementVerdict.JUMP)
