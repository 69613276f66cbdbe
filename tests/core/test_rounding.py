"""Rounding of forwards and their inputs: right gradients pass, and errors above it are found."""

from __future__ import annotations

from collections.abc import Callable
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
    normal,
    with_backward,
    with_scaled_gradient,
)


@pytest.mark.parametrize("scale", [1e-2, 1e-4])
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
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x = scale * (2 * torch.rand(5, generator=generator, dtype=torch.float64) - 1)
        assert gradcheck(function, x.requires_grad_()).verdict is not Verdict.FAIL
        assert gradgradcheck(function, x).verdict is not Verdict.FAIL


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
        assert (result.verdict, result.undetermined) == (Verdict.PASS, 0)
        assert result.detection_limit is not None
        assert result.detection_limit < 1e-6
        assert gradcheck(with_scaled_gradient(function, 1 + 1e-5), z).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("factor", [700.0, 1000.0, 3e4])
def test_bars_cover_evenly_growing_rounding_of_products(factor: float) -> None:
    """The rounding of factor · x grows by the same amount from sample to sample, so that no difference shows it."""

    def slope(x: Tensor) -> Tensor:
        return factor * torch.cos(factor * x)

    x = (1500 + 150 * normal(60).detach()).requires_grad_()
    assert gradcheck(claimed(lambda x: torch.sin(factor * x), slope), x).verdict is Verdict.PASS
    refused = gradcheck(claimed(lambda x: torch.sin(factor * x), lambda x: -slope(x)), x)
    exact, found = slope(x.detach()), elements(refused, ElementVerdict.MISMATCH)
    assert len(found) == 60
    for element in found:
        assert abs(element.numeric - float(exact[element.input_index])) <= 10 * element.error_bar
        assert 10 * element.error_bar <= 1e-3 * factor  # and the bars are still informative


def test_noise_is_measured_in_outputs_whose_square_underflows() -> None:
    def shifted(x: Tensor) -> Tensor:
        return (x - 350.0).exp()  # 1e-152; x - 350 is rounded to 6e-14

    assert gradcheck(claimed(shifted, shifted), double([0.1])).verdict is Verdict.PASS
    assert gradcheck(claimed(shifted, lambda x: (1 + 1e-6) * shifted(x)), double([0.1])).verdict is Verdict.FAIL
    assert gradgradcheck(lambda x: x.logsumexp(0), double([-350.0, 0.0, 350.0])).verdict is Verdict.PASS


def test_right_gradient_on_stairs_as_wide_as_the_input_does_not_fail() -> None:
    fifteen_ulps_of_1 = [3e-15] * 20
    assert gradcheck(lambda x: (1 + x) - 1, double(fifteen_ulps_of_1)).verdict is not Verdict.FAIL


def test_rounding_error_claimed_for_zero_gradient_passes() -> None:
    def of_one(x: Tensor, weight: Tensor) -> Tensor:
        return torch.native_layer_norm(x, (1,), weight, None, 1e-5)[0]

    assert gradcheck(of_one, double([-4.8270]), double([-4.8270])).verdict is Verdict.PASS
    assert gradcheck(claimed(torch.zeros_like, lambda x: x * 1e-9), double([1.5])).verdict is Verdict.FAIL


@pytest.mark.parametrize("off", [1e-16, 2e-16])
def test_rounding_error_at_the_point_alone_is_not_a_jump(off: float) -> None:
    x = torch.linspace(0.3, 1.3, 7, dtype=torch.float64)
    point = x.clone()
    for factor, verdict in ((1.0, Verdict.PASS), (1 + 1e-6, Verdict.FAIL), (2.0, Verdict.FAIL)):
        wrong = claimed(lambda x: 0.04 * x.sin() + off * (x == point), lambda x: factor * 0.04 * x.cos())  # noqa: B023
        assert gradcheck(wrong, x.requires_grad_()).verdict is verdict


def pseudo_huber(place: int, error: float) -> Callable[..., Any]:
    """Return √(1 + x²) - 1, which cancels near zero, with one wrong entry in its gradient."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        slope = x / torch.sqrt(1 + x * x)
        slope[place] *= 1 + error
        return g * slope

    return with_backward(lambda x: torch.sqrt(1 + x * x) - 1, backward)


@pytest.mark.parametrize(
    # draws with an entry near zero, at which differences of √(1 + x²) - 1 once looked like a kink
    ("size", "seed", "scale", "place", "error"),
    [(1, 91, 0.01, 0, 1e-2), (64, 85, 1.0, 21, 1e-3), (32, 1114, 1.0, 4, 3e-5), (32, 1193, 1.0, 21, 2e-2)],
)
def test_rounding_of_an_output_that_cancels_is_no_kink(
    size: int, seed: int, scale: float, place: int, error: float
) -> None:
    x = normal(size, seed=seed, scale=scale)
    wrong = gradcheck(pseudo_huber(place, error), x)
    assert (wrong.verdict, wrong.mismatched, wrong.kinks) == (Verdict.FAIL, 1, 0)
    right = gradcheck(pseudo_huber(place, 0.0), x)
    assert (right.verdict, right.kinks) == (Verdict.PASS, 0)


@pytest.mark.parametrize("small", [2e-8, 8e-9, 1.85e-9, 1e-12])
@pytest.mark.parametrize(
    ("value", "slope"),
    [
        (lambda x: x.cosh().log(), torch.tanh),
        (lambda x: (1 + x * x).sqrt() - 1, lambda x: x / (1 + x * x).sqrt()),
        (lambda x: (1 + x * x).log(), lambda x: 2 * x / (1 + x * x)),
    ],
)
def test_an_output_constant_by_cancellation_does_not_fail(
    value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], small: float
) -> None:
    right = with_backward(value, lambda grad, x: grad * slope(x))
    assert gradcheck(right, double([small, -2.3 * small])).verdict is not Verdict.FAIL


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-9])
def test_a_nonzero_claim_for_a_constant_output_fails(size: float) -> None:
    wrong = with_backward(torch.relu, lambda grad, _: grad)
    assert gradcheck(wrong, double([size, -size])).mismatched == 1


@pytest.mark.parametrize("count", [3, 10, 60])
def test_the_slope_within_a_stair_of_an_intermediate_result_is_no_derivative(count: int) -> None:
    """exp(x) - 1 moves in stairs of 2e-16: within one, (exp(x) - 1) / x falls as 1 / x, a million times as steeply."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * (x * x.exp() - x.exp() + 1) / x**2  # 9e-5 off at 1e-6, by cancellation

    x = torch.logspace(-6, 0, count, dtype=torch.float64).requires_grad_()
    result = gradcheck(with_backward(lambda x: (x.exp() - 1) / x, backward), x)
    shown = [element.numeric for finding in result.findings for element in finding.elements]
    assert all(0.5 < numeric < 0.51 for numeric in shown), shown


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_part_of_a_complex_number_that_is_zero_is_rounded_like_the_other(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, generator=generator, dtype=torch.complex128).requires_grad_()
    assert gradcheck(lambda z: z * z.conj(), z).verdict is Verdict.PASS
    slanted = with_backward(lambda z: z * z.conj(), lambda g, z: 2 * g.real * z + 1e-5 * g.imag * z)
    assert gradcheck(slanted, z).verdict is Verdict.FAIL
