"""Noise of the forward, and which errors of backward it may excuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import claimed, double, gradcheck, gradgradcheck, with_backward

SMALL = [1e-6, 1e-8, 1e-10, 1e-14, 1e-20]
SOME = (0.3, -1.2, 0.7, 2.1, -0.4)
SECOND = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("small", SMALL)
def test_tolerance_scales_with_small_values(small: float) -> None:
    def sine(x: Tensor) -> Tensor:
        return small * x.sin()

    def slope(x: Tensor) -> Tensor:
        return small * x.cos()

    assert gradcheck(claimed(sine, slope), double(SOME)).verdict == "pass"
    for error in (1e-6, 1e-5, 1e-4):
        wrong = claimed(sine, lambda x, error=error: slope(x) * (1 + error * SECOND))  # type: ignore[misc]
        assert gradcheck(wrong, double(SOME)).mismatched == 1


@pytest.mark.slow
@pytest.mark.parametrize("small", SMALL)
def test_tolerance_scales_with_small_values_at_order_2(small: float) -> None:
    def vjp(error: float) -> object:
        inner = with_backward(
            lambda g, x: g * small * x.cos(),
            lambda h, g, x: (h * small * x.cos(), -h * g * small * x.sin() * (1 + error * SECOND)),
        )
        return with_backward(lambda x: small * x.sin(), lambda g, x: inner(g, x))

    assert gradgradcheck(vjp(0.0), double(SOME)).verdict == "pass"  # type: ignore[arg-type]
    for error in (1e-6, 1e-3, -2.0):
        assert gradgradcheck(vjp(error), double(SOME)).mismatched == 1  # type: ignore[arg-type]


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


def test_noise_is_measured_in_outputs_whose_square_underflows() -> None:
    def shifted(x: Tensor) -> Tensor:
        return (x - 350.0).exp()  # 1e-152; x - 350 is rounded to 6e-14

    assert gradcheck(claimed(shifted, shifted), double([0.1])).verdict is Verdict.PASS
    assert gradcheck(claimed(shifted, lambda x: (1 + 1e-6) * shifted(x)), double([0.1])).verdict is Verdict.FAIL
    assert gradgradcheck(lambda x: x.logsumexp(0), double([-350.0, 0.0, 350.0])).verdict is Verdict.PASS


def test_right_gradient_on_stairs_as_wide_as_the_input_does_not_fail() -> None:
    fifteen_ulps_of_1 = [3e-15] * 20
    assert gradcheck(lambda x: (1 + x) - 1, double(fifteen_ulps_of_1)).verdict is not Verdict.FAIL


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


def test_a_saturated_slope_is_verified_to_the_same_tolerance() -> None:
    def slope(x: Tensor) -> Tensor:
        return x.sigmoid() * (1 + x * (-x).sigmoid())

    far = double([-33.4, 1.0, 0.3, -24.0, 2.0])
    assert gradcheck(claimed(torch.nn.functional.silu, slope), far).verdict == "pass"
    for error in (1e-6, 1e-4):
        for place in torch.eye(5, dtype=torch.float64)[[0, 3]]:
            wrong = claimed(torch.nn.functional.silu, lambda x, by=1 + error * place: slope(x) * by)  # type: ignore[misc]
            assert gradcheck(wrong, far).mismatched == 1


def test_a_much_steeper_slope_does_not_loosen_the_tolerance_of_another() -> None:
    steep = double([28.4, 50.7])
    wrong = claimed(torch.expm1, lambda x: x.exp() * (1 + 1e-6 * double([1.0, 0.0])))
    assert gradcheck(claimed(torch.expm1, torch.exp), steep).verdict == "pass"
    assert gradcheck(wrong, steep).mismatched == 1


@pytest.mark.parametrize("logit", [22.0, 30.0, 36.0, 40.0])
def test_cancellation_in_backward_is_within_its_rounding(logit: float) -> None:
    def loss(x: Tensor) -> Tensor:
        return x.clamp(min=0) - x + (-x.abs()).exp().log1p()

    for point in ([logit], [logit, 0.3, -1.2]):
        assert gradcheck(claimed(loss, lambda x: x.sigmoid() - 1), double(point)).verdict == "pass"
    accurate = claimed(loss, lambda x: -(-x).sigmoid())
    assert gradcheck(accurate, double([logit])).verdict == "pass"
    for factor in (1 + 1e-6, 2.0) if logit < 36 else ():
        wrong = claimed(loss, lambda x, factor=factor: -(-x).sigmoid() * factor)  # type: ignore[misc]
        assert gradcheck(wrong, double([logit])).mismatched == 1


def test_cross_entropy_of_a_confident_prediction_passes_at_order_2() -> None:
    def loss(x: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(torch.stack([x, -x], 1), torch.zeros(len(x), dtype=torch.long))

    for logit in (19.2, 21.3, 24.0):
        assert gradgradcheck(loss, double([logit, 0.3])).verdict == "pass"


def written_out_gelu(error: float) -> Callable[[Tensor], Tensor]:
    """Return gelu with the textbook derivative, whose own derivative is wrong by a relative `error`."""

    def density(x: Tensor) -> Tensor:
        return (-x * x / 2).exp() / math.sqrt(2 * math.pi)

    inner = with_backward(
        lambda g, x: g * ((1 + torch.erf(x / math.sqrt(2))) / 2 + x * density(x)),
        lambda h, g, x: (
            h * ((1 + torch.erf(x / math.sqrt(2))) / 2 + x * density(x)),
            h * g * density(x) * (2 - x * x) * (1 + error),
        ),
    )
    return with_backward(torch.nn.functional.gelu, lambda g, x: inner(g, x))


def test_a_saturated_term_in_backward_passes_at_order_2() -> None:
    for place in (-8.5, -10.0, -16.0):
        assert gradgradcheck(written_out_gelu(0.0), double([place])).verdict == "pass"
        assert gradgradcheck(written_out_gelu(0.0), double([place, 0.3])).verdict == "pass"
    for place in (-2.0, -4.0):
        assert gradgradcheck(written_out_gelu(1e-6), double([place, 0.3])).verdict == "fail"


@pytest.mark.parametrize("seed", [105, 107, 116, 127, 128])
def test_rounding_stairs_of_backward_pass_at_order_2(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = 4 * torch.randn(64, generator=generator, dtype=torch.float64)
    assert gradgradcheck(written_out_gelu(0.0), x.requires_grad_()).verdict == "pass"
    for error in (1e-6, -1e-3):
        x = torch.cat([x.detach(), torch.tensor([-5.0])])
        assert gradgradcheck(written_out_gelu(error), x.requires_grad_()).verdict == "fail"


def test_saturation_in_one_input_does_not_fail_another_at_order_2() -> None:
    def tanh(error: float) -> Callable[[Tensor], Tensor]:
        scaled = with_backward(torch.clone, lambda h, _: h * (1 + error))
        return with_backward(torch.tanh, lambda g, z: scaled(g * (1 - z.tanh().square()).conj()))

    def at(*places: complex) -> Tensor:
        return torch.tensor(places, dtype=torch.complex128, requires_grad=True)

    for place in (26 + 17j, 30 + 0.3j):
        assert gradgradcheck(tanh(0.0), at(place)).verdict in ("pass", "inconclusive")
    for place in (5 + 1j, 0.3 + 17j):
        assert gradgradcheck(tanh(0.0), at(place)).verdict == "pass"
        assert gradgradcheck(tanh(1e-6), at(place)).verdict == "fail"


@pytest.mark.parametrize(("count", "scale"), [(30, 36.0), (100, 16.0), (100, 60.0), (400, 25.0)])
def test_cancellation_in_many_rows_of_backward_is_within_its_rounding(count: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(count)
    x = scale * torch.randn(count, generator=generator, dtype=torch.float64)
    loss = torch.nn.functional.logsigmoid
    assert gradcheck(claimed(loss, lambda x: 1 - x.sigmoid()), x.requires_grad_()).verdict == "pass"
    for factor in (1 + 1e-6, 1 - 1e-3):
        wrong = claimed(loss, lambda x, factor=factor: (-x).sigmoid() * factor)  # type: ignore[misc]
        assert gradcheck(wrong, x).mismatched == count


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_multiples_of_the_last_digit_are_not_excused_if_no_gradient_is_larger(share: float) -> None:
    digit = 2.0**-52
    wrong = claimed(lambda x: digit * x.sin(), lambda x: share * digit * x.cos().round())
    assert gradcheck(wrong, double([0.0, 1e-3])).mismatched == 2


@pytest.mark.parametrize("noise", [1e-11, 1e-7])
def test_noise_excuses_no_error_in_one_term_of_a_sum(noise: float) -> None:
    def shaken(x: Tensor) -> Tensor:
        return x.sin().sum() * (1 + noise * (1e21 * x.sum()).sin())

    x = double([0.3, -1.2, 0.7])
    assert gradcheck(with_backward(shaken, lambda grad, x: grad * x.cos()), x).verdict is Verdict.PASS
    off = torch.tensor([1.05, 1.0, 1.0], dtype=torch.float64)
    assert gradcheck(with_backward(shaken, lambda grad, x: grad * x.cos() * off), x).mismatched == 1
