"""Smooth functions with many entries: numeric values are within their bars, and one wrong entry is found.

The numeric value of every entry is read from the report on a function whose claims are all wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.result import CheckResult, Element, Verdict
from tests.core.support import (
    ALONE,
    claimed,
    derivative_of,
    double,
    gradcheck,
    normal,
    problem_of,
    with_backward,
)

Function = Callable[[Tensor], Tensor]
BARS = 10.0  # an error counts if it exceeds ten error bars

OF_ROWS: list[Function] = [
    lambda x: x.softmax(-1),
    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    lambda x: x.sin().cumsum(-1),
    lambda x: x.exp().logsumexp(-1),
]
ELEMENTWISE: list[Function] = [torch.sin, torch.exp, torch.tanh, lambda x: torch.log1p(x * x), lambda x: x**7]


def refused(function: Function, x: Tensor) -> CheckResult:
    """Return the result for a function that claims minus its derivative, with all elements."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        inside = x.detach().requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad(function(inside), inside, grad)
        return -found

    everything = replace(ALONE, max_elements=x.numel() ** 2)
    return run_check("gradcheck", problem_of(with_backward(function, backward), x), everything)


def numeric_values(result: CheckResult) -> dict[tuple[tuple[int, ...], tuple[int, ...]], Element]:
    """Return the wrong elements by (output index, input index)."""
    return {
        (element.output_index, element.input_index): element
        for finding in result.findings
        for element in finding.elements
    }


@pytest.mark.slow
@pytest.mark.parametrize("function", OF_ROWS)
def test_entries_of_a_large_problem_equal_those_of_each_row_alone(function: Function) -> None:
    x = normal(24, 8)
    whole = numeric_values(refused(function, x))
    alone = [numeric_values(refused(function, row.detach().unsqueeze(0).requires_grad_())) for row in x]
    assert len(whole) == sum(len(each) for each in alone) > 0
    for (output, entry), found in whole.items():
        expected = alone[output[0]][((0, *output[1:]), (0, *entry[1:]))]
        assert abs(found.numeric - expected.numeric) <= BARS * (found.error_bar + expected.error_bar) + 1e-15
        assert found.verdict is expected.verdict


@pytest.mark.parametrize("function", [*OF_ROWS, *ELEMENTWISE])
@pytest.mark.parametrize("relative_noise", [0.0, 1e-13, 1e-10])
def test_numeric_value_is_within_its_error_bar(function: Function, relative_noise: float) -> None:
    def noisy(x: Tensor) -> Tensor:
        value = function(x)
        return value * (1 + relative_noise * (1e25 * value.detach()).sin())  # differs from one float to the next

    x = normal(3, 8, seed=1)
    exact = torch.autograd.functional.jacobian(function, x)
    found = numeric_values(refused(noisy, x))
    assert found
    largest = float(exact.abs().max())
    for (output, entry), element in found.items():
        assert abs(element.numeric - float(exact[output + entry])) <= BARS * element.error_bar + 1e-15
        assert element.error_bar <= 1e-4 * largest  # at 1e-10, noise hides no error of a thousandth


@pytest.mark.parametrize("function", ELEMENTWISE)
@pytest.mark.parametrize("relative_noise", [0.0, 1e-13, 1e-10])
def test_error_of_an_accepted_entry_is_within_its_error_bar(function: Function, relative_noise: float) -> None:
    """With one entry, the largest error and the largest bar of the result are those of this entry."""

    def noisy(x: Tensor) -> Tensor:
        value = function(x)
        return value * (1 + relative_noise * (1e25 * value.detach()).sin())

    for value in normal(20, seed=4).tolist():
        result = gradcheck(claimed(noisy, derivative_of(function)), double([value]))
        assert (result.verdict, result.entries) == (Verdict.PASS, 1)
        assert result.max_error <= BARS * result.max_error_bar + 1e-15


@pytest.mark.parametrize("error", [1e-6, -1e-4, 1.0])
@pytest.mark.parametrize("place", [0, 77, 127])
def test_one_wrong_slope_inside_a_running_sum_fails(error: float, place: int) -> None:
    def slope(x: Tensor) -> Tensor:
        return x.cos() * (1 + error * (torch.arange(128) == place)).view(8, 16)

    result = gradcheck(lambda x: claimed(torch.sin, slope)(x).cumsum(-1), normal(8, 16, seed=2))
    later_in_row = 16 - place % 16  # outputs that the wrong slope enters
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, later_in_row)


def test_mean_slope_claimed_at_a_kink_inside_a_running_sum_passes() -> None:
    x = normal(8, 16, seed=2).detach()
    x[2, 5] = 0.0
    result = gradcheck(lambda x: x.abs().cumsum(-1), x.requires_grad_())
    assert (result.verdict, result.kinks) == (Verdict.PASS, 16 - 5)
    outside = claimed(torch.abs, lambda x: torch.where(x == 0, 1.1, x.sign()))
    assert gradcheck(lambda x: outside(x).cumsum(-1), x).mismatched == 16 - 5


@pytest.mark.parametrize(
    ("function", "kinks"),
    [
        (torch.sin, 0),
        (torch.exp, 0),
        (lambda x: 3 * x, 0),
        (torch.abs, 1),
        (lambda x: x + 1e-6 * x.abs(), 1),
        (lambda x: (x.exp() - 1).relu(), 1),
    ],
)
def test_only_functions_with_a_kink_at_the_point_are_said_to_have_one(function: Function, kinks: int) -> None:
    x = normal(40).detach()
    x[17] = 0.0
    result = gradcheck(function, x.requires_grad_())
    assert (result.verdict, result.kinks) == (Verdict.PASS, kinks)
