"""Elementwise functions of several inputs, and order 2: a wrong or missing entry by either input is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import Verdict
from tests.core.support import ALONE, gradcheck, gradgradcheck, problem_of, with_backward


def positive(size: int, seed: int) -> Tensor:
    """Return a differentiated vector of numbers between 1/2 and 2."""
    generator = torch.Generator().manual_seed(seed)
    return (0.5 + 1.5 * torch.rand(size, dtype=torch.float64, generator=generator)).requires_grad_()


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.integers(1, 300), st.integers(0, 1000), st.integers(0, 1), st.sampled_from([-1.0, -1e-6, 1e-6, 1e-3, 0.5]))
def test_wrong_entry_by_either_input_is_named(size: int, seed: int, by: int, error: float) -> None:
    place = seed % size
    off = 1 + error * (torch.arange(size) == place)

    def backward(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        found = [grad * y.cos(), -grad * x * y.sin()]
        found[by] = found[by] * off
        return found[0], found[1]

    wrong = with_backward(lambda x, y: x * y.cos(), backward)
    result = gradcheck(wrong, positive(size, seed), positive(size, seed + 1))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    assert result.findings[0].wrt == "xy"[by]
    assert result.findings[0].elements[0].input_index == (place,)


def _leaking(source: int, target: int, forth: float, back: float) -> Callable[..., Any]:
    """Return a product with one off-diagonal entry by the second input, in forward, in backward or in both."""

    def forward(x: Tensor, y: Tensor) -> Tensor:
        result = x * y
        result[target] += forth * y[source]
        return result

    def backward(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        by_y = grad * x
        by_y[source] += back * grad[target]
        return grad * y, by_y

    return with_backward(forward, backward)


@pytest.mark.parametrize(("source", "target"), [(0, 1), (90, 7), (98, 99), (50, 3)])
@pytest.mark.parametrize("size", [1e-5, 1.0])
def test_off_diagonal_entry_of_one_side_is_found(source: int, target: int, size: float) -> None:
    x, y = positive(100, 0), positive(100, 1)
    assert gradcheck(_leaking(source, target, size, size), x, y).verdict is Verdict.PASS
    for forth, back in ((size, 0.0), (0.0, size)):
        result = gradcheck(_leaking(source, target, forth, back), x, y)
        assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def _exp_with_second_derivative(off: Tensor) -> Callable[[Tensor], Tensor]:
    """Return exp, with its second derivative multiplied by `off`."""
    slope = with_backward(
        lambda x, grad: grad * x.exp(), lambda outer, x, grad: (off * outer * grad * x.exp(), outer * x.exp())
    )
    return with_backward(torch.exp, lambda grad, x: slope(x, grad))


def test_wrong_entry_at_order_2_is_found() -> None:
    off, x = torch.ones(200, dtype=torch.float64), positive(200, 0)
    assert gradgradcheck(_exp_with_second_derivative(off.clone()), x).verdict is Verdict.PASS
    off[17] += 1e-6
    result = gradgradcheck(_exp_with_second_derivative(off), x)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_ties_of_two_inputs_are_judged_by_both_inputs_together() -> None:
    size, ties = 400, [5, 9]
    x, y = positive(size, 0).detach(), positive(size, 1).detach()
    x[ties] = y[ties]

    def half(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.where(x == y, 0.5, (x > y).double())
        return grad * share, grad * (1 - share)

    larger = with_backward(torch.maximum, half)
    right = gradcheck(larger, x.requires_grad_(), y.requires_grad_())
    assert (right.verdict, right.kinks) == (Verdict.PASS, 2 * len(ties))
    wrong = gradcheck(with_backward(torch.maximum, lambda grad, x, y: (grad * (x > y), grad * 0.9 * (x < y))), x, y)
    zero_at_ties = 2 * len(ties)  # zero by both inputs is no subgradient: the two have to add up to one
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, int((x < y).sum()) + zero_at_ties)


@pytest.mark.parametrize("value", [0.0, 1e-5, -1e-5], ids=["on the kink", "right of it", "left of it"])
def test_diagnosis_knows_the_entry_at_a_kink_beside_smooth_ones(value: float) -> None:
    """A factor is named as the cause only if it explains the whole Jacobian."""
    x = positive(32, 0).detach()
    x[5] = value
    doubled = with_backward(torch.relu, lambda grad, x: 2 * grad * (x > 0))
    result = run_check("gradcheck", problem_of(doubled, x.requires_grad_()), ALONE, diagnose)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, int((x > 0).sum()))
    assert result.findings[0].cause == "constant-factor"
