"""Elementwise functions of several inputs: a few samples by each input judge all entries, and overlook no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.core.decide.comparison import dense_entries
from gradverify.core.decide.context import unchanged
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.jacobians import investigate
from gradverify.core.model.tape import record
from gradverify.result import Verdict
from tests.core.support import ALONE, gradcheck, gradgradcheck, problem_of, with_backward


def drawn(size: int, seed: int) -> Tensor:
    """Return a vector of numbers between 1/2 and 2 that requires a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return (0.5 + 1.5 * torch.rand(size, dtype=torch.float64, generator=generator)).requires_grad_()


def scaled(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x.exp() * y + z / y


SMOOTH: list[tuple[Callable[..., Any], int]] = [(torch.mul, 2), (torch.atan2, 2), (torch.hypot, 2), (scaled, 3)]


@pytest.mark.parametrize(("function", "inputs"), SMOOTH)
@pytest.mark.parametrize("size", [5, 32, 700])
def test_cost_of_smooth_function(function: Callable[..., Any], inputs: int, size: int) -> None:
    result = gradcheck(function, *(drawn(size, seed) for seed in range(inputs)))
    assert result.verdict is Verdict.PASS
    assert result.entries == inputs * size * size
    assert result.evaluations.forward <= (5 if size < 100 else 4 + 7 * inputs)
    assert result.evaluations.backward <= 2


@pytest.mark.parametrize("function", [torch.sin, torch.exp, torch.nn.functional.gelu])
def test_cost_at_order_2(function: Callable[..., Any]) -> None:
    x = drawn(300, 0)
    result = gradgradcheck(function, x)
    assert (result.verdict, result.entries) == (Verdict.PASS, 2 * 300 * 300)
    assert result.evaluations.backward <= 7  # each of 5 forwards is one


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.integers(1, 300), st.integers(0, 1000), st.integers(0, 1), st.sampled_from([-1.0, -1e-6, 1e-6, 1e-3, 0.5]))
def test_wrong_entry_by_either_input_is_found(size: int, seed: int, by: int, error: float) -> None:
    place = seed % size
    off = 1 + error * (torch.arange(size) == place)

    def backward(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        found = [grad * y.cos(), -grad * x * y.sin()]
        found[by] = found[by] * off
        return found[0], found[1]

    wrong = with_backward(lambda x, y: x * y.cos(), backward)
    result = gradcheck(wrong, drawn(size, seed), drawn(size, seed + 1))
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


@pytest.mark.parametrize(("source", "target"), [(0, 1), (7, 90), (90, 7), (98, 99), (50, 3)])
@pytest.mark.parametrize("size", [1e-5, 1.0])
def test_off_diagonal_entry_of_one_side_is_found(source: int, target: int, size: float) -> None:
    x, y = drawn(100, 0), drawn(100, 1)
    assert gradcheck(_leaking(source, target, size, size), x, y).verdict is Verdict.PASS
    for forth, back in ((size, 0.0), (0.0, size)):
        result = gradcheck(_leaking(source, target, forth, back), x, y)
        assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_wrong_entry_at_order_2_is_found() -> None:
    class Leaking(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return slope(x, grad)

    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, grad: Tensor) -> Tensor:
            ctx.save_for_backward(x, grad)
            return grad * x.exp()

        @staticmethod
        def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, Tensor]:
            x, grad = ctx.saved_tensors
            by_x = outer * grad * x.exp()
            by_x[17] *= 1 + 1e-6
            return by_x, outer * x.exp()

    slope: Callable[..., Any] = Slope.apply
    result = gradgradcheck(Leaking.apply, drawn(200, 0))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_kinks_are_judged_by_all_inputs() -> None:
    x, y = drawn(400, 0).detach(), drawn(400, 1).detach()
    x[[5, 9]] = y[[5, 9]]  # ties, at which the maximum has kinks

    def half(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.where(x == y, 0.5, (x > y).double())
        return grad * share, grad * (1 - share)

    larger = with_backward(torch.maximum, half)
    right = gradcheck(larger, x.requires_grad_(), y.requires_grad_())
    assert (right.verdict, right.kinks) == (Verdict.PASS, 4)
    wrong = gradcheck(with_backward(torch.maximum, lambda grad, x, y: (grad * (x > y), grad * 0.9 * (x < y))), x, y)
    ties = 2 * 2  # zero by both inputs is the gradient of neither piece
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, int((x < y).sum()) + ties)


def test_dense_entries_are_kept() -> None:
    x, y = drawn(50, 0), drawn(50, 1)
    problem = problem_of(torch.mul, x, y)
    ready = made_repeatable(problem, record(problem), 0)
    assert ready is not None
    known = dense_entries(investigate(ready, ALONE, unchanged).comparison, 100, 50)
    assert known is not None
    expected = torch.cat([torch.diag(y.detach()), torch.diag(x.detach())])
    assert torch.equal(known.claimed, expected)
    torch.testing.assert_close(known.numeric, expected)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 31])
def test_short_input_is_judged(size: int) -> None:
    x = drawn(size, 0)
    right = gradcheck(torch.exp, x)
    assert (right.verdict, right.entries) == (Verdict.PASS, size * size)
    assert right.evaluations.forward <= 5
    off = 1 + 1e-6 * (torch.arange(size) == size - 1)
    wrong = gradcheck(with_backward(torch.exp, lambda grad, x: off * grad * x.exp()), x)
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)
    if size > 1:
        leaks = with_backward(torch.exp, lambda grad, x: grad * x.exp() + 1e-9 * grad.roll(1))
        assert gradcheck(leaks, x).mismatched == size
        cold = with_backward(lambda x: x.exp() + 1e-7 * x.roll(1), lambda grad, x: grad * x.exp())
        assert gradcheck(cold, x).mismatched == size
