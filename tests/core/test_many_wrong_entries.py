"""Thousands of wrong entries: the cost hardly grows with their number, and no entry fails that the ladder excuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradverify.core.decide import columns
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.ladder import judge_by_ladder
from gradverify.core.decide.verdict import Code, Judged
from gradverify.result import CheckResult, Verdict
from tests.core.support import claimed, gradcheck, with_backward

MOST = 3 * (1 << 13)  # entries judged by the ladder, at most, if a whole block is wrong, whatever its size


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [3, 20])
def test_many_wrong_entries_need_few_forwards(batch: int) -> None:
    size = 24
    transposed = with_backward(torch.matmul, lambda grad, x, w: (grad @ w.T, grad.T @ x))
    x, w = _normal(batch, size), _normal(size, size)
    result = gradcheck(transposed, x.requires_grad_(), w.requires_grad_())
    assert result.mismatched == 2 * batch * size * (size - 1)  # W[i, j] by output[b, k], unless i = k and j = k
    assert result.evaluations.forward < 20 * (x.numel() + w.numel())


@pytest.fixture
def judged_entries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of entry counts that the ladder judges, one per call."""
    found: list[int] = []

    def counted(at: JudgingContext, chosen: Tensor) -> Judged:
        judged = judge_by_ladder(at, chosen)
        found.append(judged.code.numel())
        return judged

    monkeypatch.setattr(columns, "judge_by_ladder", counted)
    return found


def _product(off: float) -> CheckResult:
    wrong = with_backward(torch.matmul, lambda grad, x, w: (grad @ w.T * (1 + off), x.T @ grad * (1 + off)))
    return gradcheck(wrong, _normal(40, 32).requires_grad_(), _normal(32, 40).requires_grad_())


@pytest.mark.slow
@pytest.mark.parametrize("off", [1e-6, 1e-3, 1.0])
def test_ladder_judges_few_entries_of_a_wrong_block(off: float, judged_entries: list[int]) -> None:
    result = _product(off)
    assert result.mismatched == 2 * 40 * 40 * 32  # all nonzero entries
    assert 0 < sum(judged_entries) <= MOST


@pytest.mark.parametrize("off", [1e-6, 1.0])
def test_ladder_judges_few_entries_of_a_wrong_elementwise_function(off: float, judged_entries: list[int]) -> None:
    result = gradcheck(claimed(torch.sin, lambda x: x.cos() * (1 + off)), _normal(50_000).requires_grad_())
    assert (result.mismatched, result.undetermined) == (50_000, 0)
    assert 0 < sum(judged_entries) <= MOST


@pytest.mark.slow
def test_ladder_judges_all_entries_if_it_excuses_some(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubting(at: JudgingContext, chosen: Tensor) -> Judged:
        judged = judge_by_ladder(at, chosen)
        code = judged.code.masked_fill((judged.code == Code.MISMATCH) & (at.claimed[chosen] < 0), Code.UNDETERMINED)
        return replace(judged, code=code)

    monkeypatch.setattr(columns, "judge_by_ladder", doubting)
    x = _normal(20_000)
    result = gradcheck(claimed(torch.sin, lambda x: 2 * x.cos()), x.requires_grad_())
    assert result.undetermined == int((x.cos() < 0).sum())
    assert result.mismatched == int((x.cos() > 0).sum())


def test_few_small_errors_are_judged_apart_from_many_large_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(120, 100, dtype=torch.float64, generator=generator) + 0.1
    at_kink = torch.zeros(100, dtype=torch.bool)
    at_kink[[5, 50, 55]] = True  # none of the columns that are drawn if all errors are in one size class
    x = torch.where(at_kink, 1.0, torch.rand(100, dtype=torch.float64, generator=generator) + 0.5).requires_grad_()

    def forward(x: Tensor) -> Tensor:
        return weights @ torch.where(at_kink, (x - 1).square() + 3e-5 * (x - 1).abs(), x.sin() * x)

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return (grad @ weights) * torch.where(at_kink, 3e-5, 1.5 * (x.sin() + x * x.cos()))

    result = gradcheck(with_backward(forward, backward), x)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 97 * 120)


def _dense(value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a function with a dense Jacobian and the right backward."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return slope(x) * (_normal(4, x.numel()).T @ grad)

    return with_backward(lambda x: _normal(4, x.numel()) @ value(x), backward)


@pytest.mark.slow
def test_many_entries_that_vary_too_quickly_for_any_step_do_not_fail() -> None:
    speed = 1e12

    def waves(x: Tensor) -> Tensor:
        return torch.sin(1e3 * torch.sin(speed * x))

    def slope(x: Tensor) -> Tensor:
        return 1e3 * speed * torch.cos(speed * x) * torch.cos(1e3 * torch.sin(speed * x))

    assert gradcheck(_dense(waves, slope), _normal(60).requires_grad_()).verdict == "inconclusive"
    assert gradcheck(claimed(waves, slope), _normal(25_000).requires_grad_()).undetermined > 24_500


def test_rounding_in_place_of_many_zeros_passes() -> None:
    def noisy(grad: Tensor, x: Tensor) -> Tensor:
        return grad.sum() * torch.where(torch.arange(x.numel()) < 4, x.cos(), 1e-17)

    partly = with_backward(lambda x: x[:4].sin().sum().repeat(3), noisy)
    assert gradcheck(partly, _normal(100).requires_grad_()).verdict == "pass"
