"""Functions of any scale: errors are within their bars, and one wrong entry is found."""

from __future__ import annotations

import math
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
    with_backward,
)

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
    assert result.verdict is Verdict.FAIL
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


def test_zero_claimed_for_slope_of_1e_6_fails() -> None:
    result = gradcheck(claimed(lambda x: 1e-6 * x, torch.zeros_like), double([1.0, 2.0]))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 2)


def test_claim_of_1e_17_for_zero_slope_passes() -> None:
    assert gradcheck(claimed(torch.zeros_like, lambda x: 0 * x + 1e-17), double([1.0])).verdict is Verdict.PASS
    assert gradcheck(claimed(torch.zeros_like, lambda x: 0 * x + 1e-12), double([1.0])).verdict is Verdict.FAIL
    function = claimed(torch.sin, torch.cos)
    assert gradcheck(lambda x: function(x) + 1e-17 * x.sum().detach(), double([1.0, 2.0])).verdict is Verdict.PASS


@pytest.mark.parametrize("count", [2, 40])
def test_enormous_claim_does_not_widen_the_error_bar(count: int) -> None:
    points = torch.linspace(0.3, 2.0, count, dtype=torch.float64).tolist()
    wrong = gradcheck(claimed(torch.sin, lambda x: torch.cos(x) + 1e200 * (x == x[0]).to(x.dtype)), double(points))
    (element,) = wrong.findings[0].elements
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)
    assert element.numeric == pytest.approx(math.cos(points[0]))
    assert element.error_bar < 1e-9


def test_error_of_twice_the_detection_limit_is_found() -> None:
    points = [0.3, 1.7, -2.0]
    limit = gradcheck(claimed(torch.sin, torch.cos), double(points)).detection_limit
    assert limit is not None
    assert limit < 1e-6
    for place in range(3):
        bump = torch.zeros(3, dtype=torch.float64)
        bump[place] = 2 * limit
        wrong = gradcheck(claimed(torch.sin, lambda x, bump=bump: torch.cos(x) * (1 + bump)), double(points))
        assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)


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
    assert gradcheck(claimed(function, lambda x: share * slope(x)), double([place])).verdict is Verdict.FAIL


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

    assert gradcheck(claimed(sine, slope), double(SOME)).verdict is Verdict.PASS
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

    assert gradgradcheck(vjp(0.0), double(SOME)).verdict is Verdict.PASS  # type: ignore[arg-type]
    for error in (1e-6, 1e-3, -2.0):
        assert gradgradcheck(vjp(error), double(SOME)).mismatched == 1  # type: ignore[arg-type]


def test_a_much_steeper_slope_does_not_loosen_the_tolerance_of_another() -> None:
    steep = double([28.4, 50.7])
    wrong = claimed(torch.expm1, lambda x: x.exp() * (1 + 1e-6 * double([1.0, 0.0])))
    assert gradcheck(claimed(torch.expm1, torch.exp), steep).verdict is Verdict.PASS
    assert gradcheck(wrong, steep).mismatched == 1


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_multiples_of_the_last_digit_are_not_excused_if_no_gradient_is_larger(share: float) -> None:
    digit = 2.0**-52
    wrong = claimed(lambda x: digit * x.sin(), lambda x: share * digit * x.cos().round())
    assert gradcheck(wrong, double([0.0, 1e-3])).mismatched == 2


@pytest.mark.parametrize("point", [[1e150, 1e-160], [1e153, 1e-300, 1.0], [1e150, 5e-324], [1e150, 0.0]])
def test_ladder_reaches_smallest_and_largest_floats(point: list[float]) -> None:
    assert gradcheck(claimed(torch.square, lambda x: 2.02 * x), double(point)).verdict is Verdict.FAIL


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_wrong_claim_for_tiny_slope_fails(factor: float) -> None:
    tiny = claimed(lambda x: 1e-20 * x.sin(), lambda x: factor * 1e-20 * x.cos())
    assert gradcheck(tiny, double([0.7, 1.1])).verdict is Verdict.FAIL


@pytest.mark.parametrize("share", [1 + 1e-6, 1 + 1e-4])
def test_enormous_input_hides_no_error_in_others(share: float) -> None:
    class Stamped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, w: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(w)
            return w * w.sin(), 2 * t

        @staticmethod
        def backward(ctx: Any, grad: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            (w,) = ctx.saved_tensors
            return share * grad * (w.sin() + w * w.cos()), 2 * other

    assert gradcheck(Stamped.apply, double([0.6, 1.4]), double([1.7e9])).mismatched == 2


@pytest.mark.parametrize("share", [0.0, 1.0, 2.0])
def test_inputs_of_other_units_hide_no_error(share: float) -> None:
    class ProductAndQuotient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, time: Tensor, speed: Tensor) -> Tensor:
            ctx.save_for_backward(time, speed)
            return torch.stack([time * speed, time / speed])

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            time, speed = ctx.saved_tensors
            return grad[0] * speed + grad[1] / speed, grad[0] * time - share * grad[1] * time / speed**2

    found = gradcheck(ProductAndQuotient.apply, double([1e-9, 2e-9]), double([3e8, 4e8]))
    assert found.mismatched == (0 if share == 1 else 2)
