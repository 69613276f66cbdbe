"""Ties of several inputs: the gradient of any piece nearby passes, and others fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.core.decide import oblique_kinks
from gradverify.result import Verdict
from tests.core.support import (
    ALONE,
    double,
    gradcheck,
    problem_of,
    with_scaled_gradient,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_ties_of_many_inputs_are_kinks_for_any_seed(seed: int) -> None:
    tied = torch.relu(torch.randn(16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    for function, x in (
        (lambda x: x.sort().values, tied.requires_grad_()),
        (torch.median, double([0.0] * 7)),
        (lambda x: x.topk(3).values, double([1.0] * 5)),
    ):
        result = run_check("gradcheck", problem_of(function, x), replace(ALONE, seed=seed))
        assert (result.verdict, result.kinks > 0) == (Verdict.PASS, True)
        assert gradcheck(with_scaled_gradient(function, 2.0), x).verdict is Verdict.FAIL


@pytest.mark.slow
def test_pieces_reached_by_several_inputs_together_are_found() -> None:
    tied = double([2.0, 0.0, 2.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    for function, x in (
        (lambda x: x.sort().values.diff(), tied),
        (lambda x: torch.maximum(x.amin(), x.new_zeros(())), double([0.0] * 8)),
    ):
        result = gradcheck(function, x)
        assert (result.verdict, result.kinks > 0) == (Verdict.PASS, True)
        assert gradcheck(with_scaled_gradient(function, -1.0), x).verdict is Verdict.FAIL


def test_value_of_no_piece_fails_at_tie() -> None:
    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.sort().values

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * grad

    assert gradcheck(Greedy.apply, double([1.0] * 5)).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("function", [torch.linalg.eigvalsh, torch.linalg.svdvals])
def test_repeated_eigenvalues_accept_gradient_of_any_order(function: Any, size: int) -> None:
    def values(a: Tensor) -> Tensor:
        return function((a + a.mT) / 2)  # type: ignore[no-any-return]

    point = torch.eye(size, dtype=torch.float64, requires_grad=True)
    assert gradcheck(values, point).verdict is Verdict.PASS
    for factor in (-1.0, 1.5):
        assert gradcheck(with_scaled_gradient(values, factor), point).verdict is Verdict.FAIL


@pytest.mark.parametrize("near", [1e-6, 1e-7])
def test_sort_of_nearly_equal_numbers_passes(near: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x, weights = (torch.randn(8, generator=generator, dtype=torch.float64) for _ in range(2))
    point = (1 + near * x).requires_grad_()
    ranked = lambda x: (x.sort().values * weights).sum()  # noqa: E731
    assert gradcheck(ranked, point).verdict is Verdict.PASS
    assert gradcheck(with_scaled_gradient(ranked, 1.01), point).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 6])
def test_maxima_over_different_subsets_of_ties_pass(count: int) -> None:
    ties = double([1.0] * count)
    for fewer in range(1, count):
        assert gradcheck(lambda x, fewer=fewer: x.amax() - x[:fewer].amax(), ties).verdict is Verdict.PASS
        assert gradcheck(lambda x, fewer=fewer: x[fewer:].amax() - x[: fewer + 1].amax(), ties).verdict is Verdict.PASS


def all_equal(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64, requires_grad=True)


ORDER_STATISTICS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "medians of columns": (lambda x: x.median(0)[0], all_equal(40, 3)),
    "the third of each column": (lambda x: x.kthvalue(3, 0)[0], all_equal(40, 3)),
    "a third of the way up": (lambda x: x.kthvalue(66)[0], all_equal(200)),
    "the middle of two": (lambda x: x.quantile(0.5), all_equal(20)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDER_STATISTICS)
def test_order_statistics_of_many_tied_inputs(name: str) -> None:
    function, x = ORDER_STATISTICS[name]
    assert gradcheck(function, x).verdict is Verdict.PASS
    for factor in (2.0, -1.0):
        assert gradcheck(with_scaled_gradient(function, factor), x).verdict is Verdict.FAIL


@pytest.mark.slow
def test_too_many_tied_ranks_are_inconclusive() -> None:
    assert gradcheck(lambda x: x.topk(100)[0], all_equal(200)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
# Draws with a median of which several inputs are copies.
@pytest.mark.parametrize("seed", [2, 7, 9])
def test_median_of_tied_inputs_in_a_saturated_output(seed: int) -> None:
    """An output of 1 - 1e-5 hides a slope of 1e-5 in noise at the steps that separate the pieces."""
    generator = torch.Generator().manual_seed(seed)
    x = ((torch.randn(30, dtype=torch.float64, generator=generator) * 4).round() / 2).requires_grad_()
    at = torch.tensor([-6.0, -5.0, 0.3, 5.0, 5.5], dtype=torch.float64)
    assert gradcheck(lambda x: torch.tanh(at - x.median()), x).mismatched == 0
    assert gradcheck(with_scaled_gradient(lambda x: torch.tanh(at - x.median()), 2.0), x).verdict is Verdict.FAIL


@pytest.mark.parametrize(("few", "verdict"), [(4, Verdict.INCONCLUSIVE), (64, Verdict.PASS)])
def test_tied_inputs_beyond_those_examined_are_not_accused(
    monkeypatch: pytest.MonkeyPatch, few: int, verdict: Verdict
) -> None:
    monkeypatch.setattr(oblique_kinks, "EXAMINED", few)
    weight = double([0.3, -1.0, 2.0, 0.5, -0.2, 1.5, -2.0, 0.8]).detach()
    tied = double([[0.0, 1.0] * 4, [2.0, 0.0] * 4])

    def ordered_sum(x: Tensor) -> Tensor:
        return x.sort(-1).values @ weight

    assert gradcheck(ordered_sum, tied).verdict is verdict
    assert gradcheck(with_scaled_gradient(ordered_sum, 2.0), tied).verdict is not Verdict.PASS
