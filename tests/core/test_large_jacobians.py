"""Jacobians too large to hold: random sums accept right ones and lead to the wrong entries of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import CheckResult, Method, Verdict
from tests.core.running_sums import SIZE, one_column, one_entry, point, running
from tests.core.support import ALONE, gradcheck, normal, problem_of, with_backward


def places(result: CheckResult) -> set[tuple[int, int]]:
    return {(e.output_index[0], e.input_index[0]) for finding in result.findings for e in finding.elements}


def test_right_gradient_passes_with_few_calls() -> None:
    result = gradcheck(running(), point())
    assert (result.verdict, result.method, result.entries) == (Verdict.PASS, Method.PROBED, SIZE**2)
    assert result.evaluations.forward <= 60
    assert result.evaluations.backward <= 10
    assert "random sums" in result.message


@pytest.mark.parametrize(("row", "column"), [(1700, 800), (SIZE - 1, 0), (2000, 2000)])
def test_wrong_entry_is_found(row: int, column: int) -> None:
    result = gradcheck(running(one_entry(row, column, 1e-3)), point())
    assert result.verdict is Verdict.FAIL
    assert places(result) == {(row, column)}
    assert result.evaluations.forward + result.evaluations.backward <= 400
    assert result.message.startswith("at least 1 of ")


@pytest.mark.parametrize("claim", [torch.nan, torch.inf])
def test_entry_that_is_not_finite_is_found_and_accuses_no_other_input(claim: float) -> None:
    def backward(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        by_x = grad.flip(0).cumsum(0).flip(0)
        wrong = torch.where((torch.arange(SIZE) == 800) & (grad[1700] != 0), claim, 0.0)
        return by_x + wrong, by_x

    result = gradcheck(with_backward(lambda x, y: (x + y).cumsum(0), backward), normal(SIZE), normal(SIZE, seed=1))
    assert (result.verdict, places(result)) == (Verdict.FAIL, {(1700, 800)})
    assert {finding.wrt for finding in result.findings} == {"x"}


def test_stray_entry_above_the_triangle_is_found() -> None:
    result = gradcheck(running(one_entry(3, 1900, 1e-4)), point())
    assert places(result) == {(3, 1900)}


def test_a_wrong_column_is_found_with_some_of_its_rows() -> None:
    result = gradcheck(running(one_column(1234, 1.001)), point())
    assert result.verdict is Verdict.FAIL
    assert {column for _, column in places(result)} == {1234}
    assert result.evaluations.forward + result.evaluations.backward <= 400


def test_three_wrong_entries_are_all_found() -> None:
    planted = [(1700, 800), (1822, 801), (1999, 31)]

    def wrong(gradient: Tensor, cotangent: Tensor, x: Tensor) -> Tensor:
        for row, column in planted:
            gradient = one_entry(row, column, 1e-2)(gradient, cotangent, x)
        return gradient

    assert places(gradcheck(running(wrong), point())) == set(planted)


def test_smaller_error_in_the_row_of_one_wrong_entry_and_the_column_of_another_is_named() -> None:
    planted = {(1700, 800): 1e-2, (1822, 801): 1e-2, (1700, 801): 1e-4}

    def wrong(gradient: Tensor, cotangent: Tensor, x: Tensor) -> Tensor:
        for (row, column), error in planted.items():
            gradient = one_entry(row, column, error)(gradient, cotangent, x)
        return gradient

    assert places(gradcheck(running(wrong), point())) == set(planted)


def test_some_entries_are_named_if_all_are_wrong() -> None:
    result = gradcheck(running(lambda gradient, cotangent, x: 1.01 * gradient), point())
    assert result.verdict is Verdict.FAIL
    assert result.mismatched >= 8
    assert result.message.startswith("at least ")


class Mixed(torch.autograd.Function):
    """A matrix times x + tanh(x / width) / 1000, which float32 cannot tell from a jump."""

    width, factor = 1e-5, 1.0

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return weight @ (x + (x / Mixed.width).tanh() / 1000)

    @classmethod
    def backward(cls, ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, weight = ctx.saved_tensors
        slope = 1 + (1 - (x / Mixed.width).tanh().square()) / (1000 * Mixed.width)
        return cls.factor * (weight.T @ grad) * slope, None


class WronglyMixed(Mixed):
    factor = 1.01


def in_float32(function: type[torch.autograd.Function]) -> CheckResult:
    x = normal(3_200, dtype=torch.float32).detach()
    x[100] = Mixed.width / 3
    return gradcheck(function.apply, x.requires_grad_(), normal(300, 3_200, scale=0.01, dtype=torch.float32).detach())


def test_right_entry_that_varies_quickly_in_float32_is_not_accused() -> None:
    assert in_float32(Mixed).verdict is not Verdict.FAIL


@pytest.mark.slow
def test_entries_that_sums_in_float32_lead_to_are_judged_in_float64() -> None:
    found = in_float32(WronglyMixed)
    assert found.verdict is Verdict.FAIL
    assert found.max_error_bar < 1e-6


def two_entries(gradient: Tensor, cotangent: Tensor, x: Tensor) -> Tensor:
    return one_entry(1822, 31, 1e-3)(one_entry(1700, 800, 1e-3)(gradient, cotangent, x), cotangent, x)


def test_a_single_wrong_column_needs_no_search() -> None:
    problem = problem_of(running(one_entry(1700, 800, 1e-3)), point())
    result = run_check("gradcheck", problem, replace(ALONE, max_evaluations=20))
    assert result.verdict is Verdict.FAIL
    assert places(result) == {(1700, 800)}


def test_search_ends_at_max_evaluations() -> None:
    problem = problem_of(running(two_entries), point())
    result = run_check("gradcheck", problem, replace(ALONE, max_evaluations=20))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "random sums" in result.message
    assert "the search ended after 20 calls" in result.message
    assert result.evaluations.forward + result.evaluations.backward < 150


@pytest.mark.parametrize("seed", range(4))
def test_error_of_twice_the_detection_limit_is_found_anywhere(seed: int) -> None:
    x = point(seed)
    limit = gradcheck(running(), x).detection_limit
    assert limit is not None
    assert limit < 1e-4
    generator = torch.Generator().manual_seed(seed)
    ordinary = float(x.detach().cos().abs().median())
    for _ in range(3):
        column = int(torch.randint(SIZE, (), generator=generator))
        row = int(torch.randint(column, SIZE, (), generator=generator))
        relative = 2 * limit * ordinary / float(x.detach()[column].cos().abs())
        problem = replace(problem_of(running(one_entry(row, column, relative)), x))
        result = run_check("gradcheck", problem, replace(ALONE, seed=seed))
        assert result.verdict is Verdict.FAIL, (row, column)


def test_kinks_within_the_steps_cause_no_mismatch() -> None:
    def bent(x: Tensor) -> Tensor:
        return (x - 1).abs().cumsum(0)

    assert gradcheck(bent, point()).verdict is Verdict.PASS


@pytest.mark.parametrize("count", [1, 3])
def test_jumps_within_the_steps_on_both_sides_cause_no_mismatch(count: int) -> None:
    """Differences are the same at all steps that are longer than these jumps are apart."""
    x = normal(3_500).detach()
    x[: 50 * count : 50] = 0.0
    assert (
        gradcheck(lambda x: functional.hardshrink(x, 1e-6).sin().cumsum(0), x.requires_grad_()).verdict is Verdict.PASS
    )


def test_a_wrong_row_of_many_inputs_is_not_taken_for_a_wrong_column() -> None:
    def summed(*inputs: Tensor) -> Tensor:
        return torch.cat(inputs).sin().cumsum(0)

    def backward(g: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        grads = [*(g.flip(0).cumsum(0).flip(0) * torch.cat(inputs).cos()).split(len(inputs[0]))]
        grads[5] = grads[5] + g[2_000] * inputs[5].cos()
        return tuple(grads)

    inputs = [normal(250, seed=seed) for seed in range(14)]
    problem = bind(with_backward(summed, backward), inputs, names=[f"x{k}" for k in range(14)])
    result = run_check("gradcheck", problem, ALONE)
    assert result.verdict is Verdict.FAIL
    assert {row for row, _ in places(result)} == {2_000}
    assert result.mismatched >= 8


def test_stray_entry_of_large_elementwise_function_is_found() -> None:
    class Leaky(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            gradient = grad * x.cos()
            gradient[7000] += 1e-3 * grad[123]
            return gradient

    x = torch.linspace(0.1, 1.2, 10_000, dtype=torch.float64).requires_grad_()
    result = gradcheck(Leaky.apply, x)
    assert result.verdict is Verdict.FAIL
    assert places(result) == {(123, 7000)}


def test_scalar_loss_of_many_inputs_is_compared_by_sums() -> None:
    x = torch.linspace(0.1, 2.0, 20_000, dtype=torch.float64).requires_grad_()
    result = gradcheck(lambda x: (x * x).sum(), x)
    assert (result.verdict, result.method) == (Verdict.PASS, Method.PROBED)
    assert result.evaluations.forward <= 100


def test_error_of_all_entries_that_only_sums_show_is_inconclusive() -> None:
    """Each entry is off by 5e-8, which is within its tolerance of 1e-7; the sums differ by more than theirs."""
    result = gradcheck(running(lambda gradient, cotangent, x: (1 + 5e-8) * gradient), point())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no single entry was found" in result.message


def test_sums_over_sort_pass() -> None:
    result = gradcheck(lambda x: x.sort().values, point())
    assert (result.verdict, result.method) == (Verdict.PASS, Method.PROBED)


def test_sums_drowned_by_noise_are_inconclusive() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x.sin().cumsum(0) + 1e3 * (1e13 * x).sin()

    result = gradcheck(with_backward(noisy, lambda grad, x: grad.flip(0).cumsum(0).flip(0) * x.cos()), point())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "too noisy" in result.message


@pytest.mark.slow
@pytest.mark.parametrize("size", [5_000, 20_000])
def test_many_kinks_within_the_steps_neither_hide_nor_cause_errors(size: int) -> None:
    """The squares of sorted numbers, with a stray entry of size `leak` in backward."""

    def sorted_squares(leak: float) -> Callable[..., Tensor]:
        def backward(grad: Tensor, x: Tensor) -> Tensor:
            values, order = x.sort()
            result = torch.zeros_like(grad).index_add(0, order, 2 * values * grad)
            result[5] += leak * grad[9]
            return result

        return with_backward(lambda x: x.sort().values.square(), backward)

    x = normal(size)
    assert gradcheck(sorted_squares(0.0), x).verdict is Verdict.PASS
    assert gradcheck(sorted_squares(1.0), x).verdict is not Verdict.PASS


@pytest.mark.parametrize("seed", range(6))
def test_error_that_passes_among_kinks_is_below_the_detection_limit(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5_000, generator=generator, dtype=torch.float64, requires_grad=True)
    bound = torch.tensor(0.37, dtype=torch.float64, requires_grad=True)
    place = int((x >= bound).nonzero().squeeze(1)[seed])
    relative = 3e-6

    def backward(grad: Tensor, x: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
        return grad * (x < bound), (grad * (x >= bound)).sum() + relative * grad[place]

    result = gradcheck(with_backward(torch.minimum, backward), x, bound)
    assert result.method is Method.PROBED
    assert result.verdict is Verdict.FAIL or result.detection_limit > relative
