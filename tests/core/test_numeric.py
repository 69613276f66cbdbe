"""Finite differences: accuracy, valid error bars, and wrong gradients that must be found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from gradverify.result import ElementVerdict, Verdict
from tests.core.support import claimed, double, elements, gradcheck, gradgradcheck, with_backward

SMOOTH: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], list[float]]] = {
    "sin": (torch.sin, torch.cos, [0.3, 1.7, -2.0]),
    "exp(10x)": (lambda x: torch.exp(10 * x), lambda x: 10 * torch.exp(10 * x), [1.0, -0.5]),
    "log at 1e-5": (torch.log, torch.reciprocal, [1e-5, 1.0]),
    "square at 1e8": (lambda x: x * x, lambda x: 2 * x, [1e8, 1.0]),
    "1e8 + sin": (lambda x: 1e8 + torch.sin(x), torch.cos, [0.4, 1.0]),
    "sin(1000x)": (lambda x: torch.sin(1000 * x), lambda x: 1000 * torch.cos(1000 * x), [1.0, 0.77]),
    "sqrt at 1e-8": (torch.sqrt, lambda x: 0.5 / torch.sqrt(x), [1e-8, 4.0]),
    "1/x at 1e-4": (torch.reciprocal, lambda x: -1 / (x * x), [1e-4, 2.0]),
    "erfc at 3": (torch.erfc, lambda x: -2 / math.sqrt(math.pi) * torch.exp(-x * x), [3.0, 0.1]),
    "x^1.5 near 0": (lambda x: x**1.5, lambda x: 1.5 * torch.sqrt(x), [1e-9, 1.0]),
    "1e-12 beside 1": (torch.sin, torch.cos, [1e-12, 1.0]),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_errors_are_within_their_bars_and_correct_gradients_pass(name: str) -> None:
    value, slope, points = SMOOTH[name]
    assert gradcheck(claimed(value, slope), double(points)).verdict is Verdict.PASS
    exact = slope(torch.tensor(points, dtype=torch.float64))
    found = elements(gradcheck(claimed(value, lambda x: -slope(x)), double(points)), ElementVerdict.MISMATCH)
    assert len(found) == len(points)
    for element in found:
        assert abs(element.numeric - float(exact[element.input_index])) <= element.error_bar


@pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-5, 1e-6])
@pytest.mark.parametrize("name", SMOOTH)
def test_single_wrong_element_is_found_and_located(name: str, size: float) -> None:
    value, slope, points = SMOOTH[name]

    def wrong(x: Tensor) -> Tensor:
        right = slope(x)
        return torch.cat([right[:1] * (1 + size), right[1:]])

    result = gradcheck(claimed(value, wrong), double(points))
    assert result.detection_limit is not None
    if size < result.detection_limit < 1e-4:  # the forward has noise of 1e-8, and the limit shows it
        assert name == "1e8 + sin"
        return
    assert result.verdict == "fail"
    assert [(finding.code, finding.total) for finding in result.findings] == [("GV101", 1)]
    assert result.findings[0].elements[0].input_index == (0,)


@pytest.mark.parametrize("name", ["exp(10x)", "log at 1e-5", "x^1.5 near 0", "erfc at 3"])
def test_function_that_varies_within_first_steps_is_resolved_by_closer_ones(name: str) -> None:
    value, slope, points = SMOOTH[name]
    result = gradcheck(claimed(value, slope), double(points))
    assert result.verdict is Verdict.PASS
    assert result.evaluations.forward <= 12
    assert result.detection_limit is not None
    assert result.detection_limit < 6e-7  # an error of 1e-6 is found


@pytest.mark.parametrize("slope", [0.0, 1.0, 2.0])
def test_closer_steps_do_not_report_slope_of_single_stair(slope: float) -> None:
    def stairs(x: Tensor) -> Tensor:
        return torch.round(x * 2**12) / 2**12 + x

    result = gradcheck(claimed(stairs, lambda x: torch.full_like(x, slope)), double([0.7, -1.3]))
    assert (result.verdict is Verdict.PASS) == (slope == 1.0)


def test_zero_claimed_for_slope_of_1e_6_fails() -> None:
    result = gradcheck(claimed(lambda x: 1e-6 * x, torch.zeros_like), double([1.0, 2.0]))
    assert (result.verdict, result.mismatched) == ("fail", 2)


def test_claim_of_1e_17_for_zero_slope_passes() -> None:
    assert gradcheck(claimed(torch.zeros_like, lambda x: 0 * x + 1e-17), double([1.0])).verdict == "pass"
    assert gradcheck(claimed(torch.zeros_like, lambda x: 0 * x + 1e-12), double([1.0])).verdict == "fail"
    function = claimed(torch.sin, torch.cos)
    assert gradcheck(lambda x: function(x) + 1e-17 * x.sum().detach(), double([1.0, 2.0])).verdict == "pass"


def test_error_of_twice_the_detection_limit_is_found() -> None:
    points = [0.3, 1.7, -2.0]
    limit = gradcheck(claimed(torch.sin, torch.cos), double(points)).detection_limit
    assert limit is not None
    assert limit < 1e-6
    for place in range(3):
        bump = torch.zeros(3, dtype=torch.float64)
        bump[place] = 2 * limit
        wrong = gradcheck(claimed(torch.sin, lambda x, bump=bump: torch.cos(x) * (1 + bump)), double(points))
        assert (wrong.verdict, wrong.mismatched) == ("fail", 1)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("shape", [(5,), (3, 4), (50,)])
def test_forward_that_resizes_and_returns_one_buffer_passes(shape: tuple[int, ...]) -> None:
    buffer = torch.empty(0, dtype=torch.float64)

    class Sin(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.sin(x.detach(), out=buffer)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * x.cos()

    point = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert gradcheck(Sin.apply, point.requires_grad_()).verdict is Verdict.PASS


def test_forward_that_returns_one_buffer_passes() -> None:
    buffer = numpy.zeros(2)

    def reused(x: Tensor) -> Tensor:
        buffer[:] = torch.sin(x).numpy()
        return torch.from_numpy(buffer)

    assert gradcheck(claimed(reused, torch.cos), double([0.5, 1.0])).verdict == "pass"


@pytest.mark.parametrize("share", [-1.0, 1.01, 1 + 1e-6])
@pytest.mark.parametrize(
    ("function", "slope", "place"),
    [
        (torch.special.erfc, lambda x: -2 / math.sqrt(math.pi) * torch.exp(-x * x), 20.0),
        (torch.exp, torch.exp, 50.0),
        (torch.exp, torch.exp, -300.0),
        (torch.log, torch.reciprocal, 1e-200),
    ],
)
def test_steep_slope_at_largest_steps_hides_no_error(function: Any, slope: Any, place: float, share: float) -> None:
    assert gradcheck(claimed(function, slope), double([place])).detection_limit < 2e-7
    assert gradcheck(claimed(function, lambda x: share * slope(x)), double([place])).verdict == "fail"


@pytest.mark.parametrize("scale", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (1 - x.cos()) / x**2,
        lambda x: (x.exp() - 1) / x,
        lambda x: ((1 + x).sqrt() - 1) / x,
        lambda x: (1 + x).log() / x,
    ],
)
def test_evenly_growing_rounding_is_measured_as_noise(function: Any, scale: float) -> None:
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        x = scale * (2 * torch.rand(5, generator=generator, dtype=torch.float64) - 1)
        assert gradcheck(function, x.requires_grad_()).verdict != "fail"
        assert gradgradcheck(function, x).verdict != "fail"


def test_error_larger_than_evenly_growing_rounding_is_found() -> None:
    wrong = claimed(lambda x: (x.exp() - 1) / x, lambda x: 1.01 * (x * x.exp() - x.exp() + 1) / x**2)
    assert gradcheck(wrong, double([1e-2, -2e-2, 3e-2])).mismatched == 3


@pytest.mark.parametrize("count", [1, 4, 8])
@pytest.mark.parametrize(
    "function", [lambda z: z * z.conj(), lambda z: torch.fft.fft(z).conj() * torch.fft.fft(z), lambda z: z / z.abs()]
)
def test_imaginary_part_that_is_pure_rounding_passes_beside_real_part(function: Any, count: int) -> None:
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        z = torch.randn(count, generator=generator, dtype=torch.complex128).requires_grad_()
        result = gradcheck(function, z)
        assert (result.verdict, result.undetermined) == ("pass", 0)
        assert result.detection_limit is not None
        assert result.detection_limit < 1e-6


@pytest.mark.parametrize("speed", [1e9, 1e12, 1e14, 1e18])
def test_function_that_varies_too_quickly_for_any_step_is_inconclusive(speed: float) -> None:
    fast = claimed(lambda x: torch.sin(1e3 * torch.sin(speed * x)), lambda x: _slope_of_waves(x, speed))
    for seed in range(5):
        x = torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert gradcheck(fast, x.requires_grad_()).verdict == "inconclusive"


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
    assert gradcheck(wrong, double([0.0])).verdict == "fail"


def _slope_of_waves(x: Tensor, speed: float) -> Tensor:
    return 1e3 * speed * torch.cos(speed * x) * torch.cos(1e3 * torch.sin(speed * x))


@pytest.mark.parametrize("share", [-1.0, 1.001, 1.1, 1e3])
def test_wrong_gradient_of_float32_forward_is_found_despite_noise(share: float) -> None:
    single = claimed(lambda x: x.float().sin().double(), lambda x: share * x.cos())
    assert gradcheck(single, double([0.3, 1.7, -2.0])).mismatched == 3


@pytest.mark.slow
@pytest.mark.parametrize("place", [-1.39051e6, 1.18743e6, 1772.06, 49965.3])
@pytest.mark.parametrize("rise", [0.01, 30.0])
def test_ripple_on_a_slope_does_not_count_as_noise(place: float, rise: float) -> None:
    def slope(x: Tensor) -> Tensor:
        return rise + (200 * x).sin()

    def rippled(x: Tensor) -> Tensor:
        return rise * x + (100 * x).sin().square() / 100

    assert gradcheck(claimed(rippled, slope), double([place])).verdict != "fail"
    for share in (0.0, 0.99, 1.01, -1.0):
        wrong = claimed(rippled, lambda x, share=share: share * slope(x))  # type: ignore[misc]
        assert gradcheck(wrong, double([place])).verdict == "fail"
