"""Elementwise functions of one input: one wrong or missing entry among many is found, whatever surrounds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.checks.registry import run_check
from gradverify.result import Method, Verdict
from tests.core.support import (
    ALONE,
    away_from_zero,
    claimed,
    gradcheck,
    gradgradcheck,
    normal,
    problem_of,
    with_backward,
    wrong_at,
)

SMOOTH = [torch.sin, torch.exp, torch.tanh, lambda x: x * x, lambda x: 3 * x + 1, lambda x: torch.log1p(x * x)]


@pytest.mark.parametrize("function", SMOOTH)
@pytest.mark.parametrize("error", [1e-6, 1e-3, 2.0])
def test_one_wrong_entry_among_many_is_named(function: Callable[..., Any], error: float) -> None:
    result = gradcheck(wrong_at(function, 321, error), away_from_zero(500))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    assert result.findings[0].elements[0].input_index == (321,)
    assert gradcheck(wrong_at(function, 321, 0.0), away_from_zero(500)).verdict is Verdict.PASS


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.integers(1, 400), st.integers(0, 1000), st.sampled_from([-1.0, -1e-6, 1e-6, 0.5]))
def test_wrong_entry_is_named_at_every_size_and_place(size: int, seed: int, error: float) -> None:
    result = gradcheck(wrong_at(torch.expm1, seed % size, error), normal(size, seed=seed))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    assert result.findings[0].elements[0].input_index == (seed % size,)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 31])
def test_wrong_and_missing_entries_of_short_inputs_are_found(size: int) -> None:
    x = away_from_zero(size)
    right = gradcheck(torch.exp, x)
    assert (right.verdict, right.entries) == (Verdict.PASS, size * size)
    wrong = gradcheck(wrong_at(torch.exp, size - 1, 1e-6), x)
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)
    if size > 1:
        superfluous = with_backward(torch.exp, lambda grad, x: grad * x.exp() + 1e-9 * grad.roll(1))
        missing = with_backward(lambda x: x.exp() + 1e-7 * x.roll(1), lambda grad, x: grad * x.exp())
        assert gradcheck(superfluous, x).mismatched == gradcheck(missing, x).mismatched == size


def _doubled_at_45(x: Tensor) -> Tensor:
    """Return sines; entry 45, if there is one, is doubled: two stacked copies of 40 entries differ."""
    weight = torch.ones_like(x)
    weight[45:46] = 2.0
    return weight * x.sin()


def _every_other_halved(x: Tensor) -> Tensor:
    """Return sines, every other one halved: stacked copies of odd length exchange the two kinds."""
    return x.sin() * torch.where(torch.arange(len(x)) % 2 == 0, 1.0, 0.5)


@pytest.mark.parametrize("function", [_doubled_at_45, _every_other_halved])
@pytest.mark.parametrize("size", [3, 40, 41])
def test_function_that_depends_on_position_is_judged_right(function: Callable[..., Any], size: int) -> None:
    x = away_from_zero(size)
    assert gradcheck(function, x).verdict is Verdict.PASS
    for place in (0, 1, size - 1):
        wrong = gradcheck(wrong_at(function, place, 1e-6), x)
        assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)


class Leaking(torch.autograd.Function):
    """sin, with one off-diagonal entry in forward, in backward or in both."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, source: int, target: int, forth: float, back: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.leak = source, target, back
        result = x.sin()
        result[target] += forth * x[source]
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (x,) = ctx.saved_tensors
        source, target, back = ctx.leak
        result = grad * x.cos()
        result[source] += back * grad[target]
        return result, None, None, None, None


@pytest.mark.parametrize(("source", "target"), [(0, 1), (90, 7), (98, 99), (50, 3)])
@pytest.mark.parametrize("size", [1e-5, 1.0])
def test_off_diagonal_entry_of_one_side_is_found(source: int, target: int, size: float) -> None:
    def leaking(forth: float, back: float) -> Callable[[Tensor], Tensor]:
        return lambda x: Leaking.apply(x, source, target, forth, back)

    assert gradcheck(leaking(size, size), away_from_zero(100)).verdict is Verdict.PASS
    for forth, back in ((size, 0.0), (0.0, size)):
        result = gradcheck(leaking(forth, back), away_from_zero(100))
        assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


@pytest.mark.parametrize("size", [1e-9, 1e-7])
def test_small_off_diagonal_entry_in_backward_is_found(size: float) -> None:
    result = gradcheck(lambda x: Leaking.apply(x, 7, 90, 0.0, size), away_from_zero(100))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


@pytest.mark.parametrize("size", [2, 40])
def test_off_diagonal_entry_far_below_the_largest_slope_is_found(size: int) -> None:
    """The slope of 1/x at 1e-6 is 1e12; a sum of it and the wrong entry of 0.1 would round the error away."""

    def leaking(g: Tensor, x: Tensor) -> Tensor:
        gradient = -g / x**2
        gradient[1] += 0.1 * g[0]
        return gradient

    x = torch.ones(size, dtype=torch.float64)
    x[1] = 1e-6
    assert gradcheck(with_backward(torch.reciprocal, leaking), x.requires_grad_()).verdict is Verdict.FAIL
    assert gradcheck(torch.reciprocal, x).verdict is Verdict.PASS


@pytest.mark.parametrize("function", [torch.log, torch.rsqrt])
def test_infinite_output_does_not_hide_other_errors(function: Callable[..., Any]) -> None:
    x = away_from_zero(200).detach().abs()
    x[31] = 0.0
    right = gradcheck(function, x.requires_grad_())
    assert (right.verdict, right.undetermined, right.mismatched) == (Verdict.INCONCLUSIVE, 1, 0)
    wrong = gradcheck(wrong_at(function, 150, 1e-6), x)
    assert (wrong.mismatched, wrong.findings[0].elements[0].input_index) == (1, (150,))


@pytest.mark.parametrize("seed", range(4))
def test_few_nonzero_outputs_do_not_set_the_noise_of_all(seed: int) -> None:
    """Bells so narrow beside the inputs that nearly every output is zero at every sample."""
    x = (1e3 * normal(600, seed=seed).detach()).requires_grad_()
    bell = claimed(lambda x: torch.exp(-x * x), lambda x: -2 * x * torch.exp(-x * x))
    result = gradcheck(bell, x)
    assert (result.verdict, result.undetermined) == (Verdict.PASS, 0)
    assert gradgradcheck(torch.tanh, x).verdict is Verdict.PASS


@pytest.mark.parametrize("function", [lambda x: x * x, lambda x: x**3, torch.expm1])
def test_wrong_entry_of_tiny_input_is_found(function: Callable[..., Any]) -> None:
    x = (1e-8 * normal(60, seed=60).detach()).requires_grad_()
    assert gradcheck(wrong_at(function, 59, 1e-4), x).mismatched == 1
    assert gradcheck(function, x).verdict is Verdict.PASS


def test_wrong_small_entry_beside_huge_exponentials_is_found() -> None:
    x = (1e3 * normal(60, seed=81).detach()).clamp(max=690.0).requires_grad_()
    place = int((x + 284).abs().argmin())
    assert gradcheck(wrong_at(torch.exp, place, -1e-4), x).mismatched == 1


def test_error_of_1e_11_beside_a_slope_near_zero_is_found() -> None:
    x = away_from_zero(1000).detach()
    x[17] = torch.pi / 2 + 4e-6
    wrong = claimed(torch.sin, lambda x: x.cos() + 1e-11 * (torch.arange(1000) == 17))
    assert gradcheck(torch.sin, x.requires_grad_()).verdict is Verdict.PASS
    assert gradcheck(wrong, x).mismatched == 1


@pytest.mark.slow
def test_rounding_to_float32_inside_makes_no_entry_fail() -> None:
    x = away_from_zero(200)
    assert gradcheck(lambda x: x.float().sin().double(), x).verdict is Verdict.PASS
    wrong = claimed(lambda x: x.float().sin().double(), lambda x: x.cos() * (1 + 0.1 * (torch.arange(200) == 17)))
    assert gradcheck(wrong, x).mismatched == 1


@pytest.mark.parametrize("atol", [1e-5, 1e-2])
def test_detection_limit_includes_atol(atol: float) -> None:
    tolerant = replace(ALONE, tolerances=Tolerances(atol=atol))
    x = away_from_zero(100)
    limit = run_check("gradcheck", problem_of(claimed(torch.exp, torch.exp), x), tolerant).detection_limit
    assert limit is not None
    assert limit >= atol / float(x.detach().exp().min())
    assert run_check("gradcheck", problem_of(wrong_at(torch.exp, 17, 2 * limit), x), tolerant).mismatched == 1


def test_detection_limit_includes_rounding_of_float32() -> None:
    found = gradcheck(claimed(torch.exp, torch.exp), away_from_zero(100).detach().float().requires_grad_())
    assert found.detection_limit is not None
    allowed = 1e-3  # default relative tolerance
    assert found.detection_limit >= allowed + 4 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("mechanism", ["raises", "counts"])
@pytest.mark.parametrize("size", [5, 100])
def test_graph_that_serves_one_vjp_is_recorded_again(size: int, mechanism: str) -> None:
    class OneBackward(torch.autograd.Function):
        """sin; backward fails from its second call on one graph, or multiplies by the number of calls."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            ctx.calls = 0
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            ctx.calls += 1
            if ctx.calls > 1 and mechanism == "raises":
                raise RuntimeError("the saved values are gone")
            return grad * x.cos() * ctx.calls

    result = gradcheck(OneBackward.apply, away_from_zero(size))
    assert result.verdict is Verdict.PASS
    assert result.evaluations.forward > gradcheck(torch.sin, away_from_zero(size)).evaluations.forward


@pytest.mark.parametrize("size", [600, 3000])
def test_wrong_gradient_at_many_kinks_is_judged_entry_by_entry(size: int) -> None:
    x = normal(size).detach().round().clamp(0, 2).requires_grad_()
    result = gradcheck(with_backward(lambda x: x.clamp(0, 1), lambda grad, x: 2 * grad * ((x >= 0) & (x <= 1))), x)
    assert (result.verdict, result.method) == (Verdict.FAIL, Method.STRUCTURED)
    assert result.mismatched == int(((x == 0) | (x == 1)).sum())
    assert (result.evaluations.forward < 110, result.evaluations.backward) == (True, 2)
