"""Thousands of wrong entries: the cost hardly grows with their number, and no entry fails that the ladder excuses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.core.decide import columns, directional
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.ladder import judge_along_line, judge_by_ladder
from gradverify.core.decide.verdict import Judged, Reason
from gradverify.core.estimate import richardson
from gradverify.core.forward.sampler import sampler
from gradverify.core.model.magnitudes import scales
from gradverify.core.model.tape import record
from gradverify.result import CheckResult, ElementVerdict, Verdict
from tests.core.support import (
    claimed,
    double,
    gradcheck,
    normal,
    one_by_one,
    problem_of,
    with_backward,
    wrong_places,
)

LADDER = 120  # forwards of one column through all steps, and of the tests before
FEW = 500  # forwards; thirty steps for each column would be tens of thousands


@pytest.mark.slow
@pytest.mark.parametrize("batch", [3, 20])
def test_many_wrong_entries_need_few_forwards(batch: int) -> None:
    size = 24
    transposed = with_backward(torch.matmul, lambda grad, x, w: (grad @ w.T, grad.T @ x))
    x, w = normal(batch, size, seed=7), normal(size, size, seed=7)
    result = gradcheck(transposed, x, w)
    assert result.mismatched == 2 * batch * size * (size - 1)  # W[i, j] by output[b, k], unless i = k and j = k
    assert result.evaluations.forward < 20 * (x.numel() + w.numel())


def test_wrong_entries_of_a_smooth_function_are_confirmed_together() -> None:
    def scaled_by(factor: float) -> CheckResult:
        return gradcheck(with_backward(lambda x: x.sin().sum(), lambda grad, x: factor * grad * x.cos()), x)

    x = normal(20, seed=7)
    right, wrong = scaled_by(1.0), scaled_by(2.0)
    reasons = Counter(element.reason for finding in wrong.findings for element in finding.elements)
    assert reasons == {Reason.DIFFERS_IN_SUM.sentence: 20}
    assert wrong.evaluations.forward <= right.evaluations.forward + LADDER


def test_one_wrong_entry_is_confirmed_with_the_right_ones_of_its_output() -> None:
    def off_at_one(grad: Tensor, x: Tensor) -> Tensor:
        return grad * x.cos() * (1 + 1e-5 * (torch.arange(20) == 7))

    x = normal(20, seed=7)
    result = gradcheck(with_backward(lambda x: x.sin().sum(), off_at_one), x)
    assert wrong_places(result) == {("x", (7,))}
    assert result.findings[0].elements[0].reason == Reason.DIFFERS_IN_SUM.sentence


@pytest.mark.parametrize("off", [1e-2, 1.0])
def test_wrong_entries_beside_a_kink_are_judged_one_by_one(off: float) -> None:
    """|x| at 0 is no smooth part of the sum, and the claim of 0.3 there is right."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * torch.where(x == 0, 0.3, x.cos() * (1 + off))

    x = torch.tensor([0.0, 0.5, -1.3, 0.8], dtype=torch.float64, requires_grad=True)
    result = gradcheck(with_backward(lambda x: x.sin().sum() + x[0].abs(), backward), x)
    assert wrong_places(result) == {("x", (place,)) for place in (1, 2, 3)}
    wrong = [each for found in result.findings for each in found.elements if each.verdict is ElementVerdict.MISMATCH]
    assert {element.reason for element in wrong} == {Reason.DIFFERS.sentence}


@pytest.mark.parametrize("place", range(0, 20, 3))
def test_right_entry_that_the_first_steps_mistake_is_not_counted_with_wrong_ones(place: int) -> None:
    """A ripple is zero at all samples of the first look, and has a slope of 1 at the point."""
    x = normal(20, seed=7)
    problem = problem_of(lambda x: x.sin().sum(), x)
    sampled = sampler(problem, record(problem))
    steps = richardson.steps(scales(sampled.point, sampled.inputs))
    period = float(steps.base[place] * steps.factors[-1])
    point = float(x[place].detach())

    def rippled(x: Tensor) -> Tensor:
        return x.sin().sum() + (2 * math.pi * (x[place] - point) / period).sin() * period / (2 * math.pi)

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        wrong = 2 * x.cos()
        wrong[place] = x[place].cos() + 1
        return grad * wrong

    result = gradcheck(with_backward(rippled, backward), x)
    assert wrong_places(result) <= {("x", (other,)) for other in range(20) if other != place}
    assert result.mismatched >= 3
    assert result.mismatched + result.undetermined >= 19
    assert result.message.endswith(f", {result.undetermined} in doubt were not examined further")


@pytest.mark.parametrize("kinked", [3, 12])
def test_what_is_in_doubt_beside_wrong_entries_is_examined_for_some_inputs_only(kinked: int) -> None:
    """The slopes at kinks are right; one input beside them has a wrong one, and the others right ones."""
    at_kink = torch.arange(40) < kinked
    x = torch.where(at_kink, 0.0, normal(40, seed=7).detach()).requires_grad_()
    mixed = torch.cat([torch.eye(40, dtype=torch.float64), torch.ones(1, 40, dtype=torch.float64)])

    def forward(x: Tensor) -> Tensor:
        return mixed @ torch.where(at_kink, x.abs(), x.sin())

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        wrong = torch.ones_like(grad).index_fill(0, torch.tensor([39]), 2.0)
        return ((grad * wrong) @ mixed) * torch.where(at_kink, 0.5, x.cos())

    result = gradcheck(with_backward(forward, backward), x)
    assert (result.verdict, wrong_places(result)) == (Verdict.FAIL, {("x", (39,))})
    assert result.mismatched == 1
    examined_whole = "not examined" not in result.message
    assert examined_whole == (kinked == 3)
    assert result.kinks == 2 * kinked if examined_whole else result.kinks < 2 * kinked


@pytest.mark.slow
def test_nan_beside_an_infinite_derivative_is_not_accused_where_another_entry_is_wrong() -> None:
    """The gradient of sqrt at 0 is inf, and 0 · inf = nan for the outputs that do not depend on that input."""
    at_zero = torch.arange(120) < 100
    x = torch.where(at_zero, 0.0, normal(120, seed=7).detach().abs() + 0.5).requires_grad_()
    mixed = torch.cat([torch.eye(120, dtype=torch.float64), torch.ones(1, 120, dtype=torch.float64)])

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        wrong = torch.where(torch.arange(len(grad)) >= 100, 2.0, 1.0)
        return ((grad * wrong) @ mixed) * (0.5 / x.sqrt())

    result = gradcheck(with_backward(lambda x: mixed @ x.sqrt(), backward), x)
    assert wrong_places(result) == {("x", (place,)) for place in range(100, 120)}


@pytest.mark.slow
@pytest.mark.parametrize("off", [1e-3, 1.0])
def test_wrong_matrix_product_takes_few_forwards(off: float) -> None:
    def product(factor: float) -> CheckResult:
        scaled = with_backward(torch.matmul, lambda grad, x, w: (grad @ w.T * factor, x.T @ grad * factor))
        return gradcheck(scaled, normal(40, 32, seed=7), normal(32, 40, seed=7))

    right, wrong = product(1.0), product(1 + off)
    assert (right.verdict, wrong.mismatched) == (Verdict.PASS, 2 * 40 * 40 * 32)  # all nonzero entries
    assert wrong.evaluations.forward <= FEW


@pytest.mark.slow
@pytest.mark.parametrize("off", [1e-6, 1.0])
def test_wrong_elementwise_function_takes_few_forwards(off: float) -> None:
    result = gradcheck(claimed(torch.sin, lambda x: x.cos() * (1 + off)), normal(20_000, seed=7))
    assert (result.mismatched, result.undetermined) == (20_000, 0)
    assert result.evaluations.forward <= FEW


@pytest.mark.parametrize("distance", [1.0, 1e-3], ids=["far from a kink", "near a kink"])
def test_wrong_claims_in_place_of_zeros_take_few_forwards(distance: float) -> None:
    x = double([0.3, 0.3 - distance, 1.1, -0.4, 0.9, 0.2])

    def forward(x: Tensor) -> Tensor:
        return (x.roll(1) - x).relu()

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        passed = grad * (x.roll(1) > x)
        return passed.roll(-1) - passed

    def plus_one(grad: Tensor, x: Tensor) -> Tensor:
        return backward(grad, x) + grad.sum()

    right, wrong = (gradcheck(one_by_one(with_backward(forward, each)), x) for each in (backward, plus_one))
    assert (right.verdict, wrong.mismatched) == (Verdict.PASS, x.numel() ** 2)
    assert wrong.evaluations.forward < 3 * right.evaluations.forward


def test_few_small_errors_are_judged_apart_from_many_large_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(120, 100, dtype=torch.float64, generator=generator) + 0.1
    at_kink = torch.zeros(100, dtype=torch.bool)
    at_kink[[5, 50, 55]] = True  # a few columns, of which the ladder may judge none
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
        return slope(x) * (normal(4, x.numel(), seed=7).detach().T @ grad)

    return with_backward(lambda x: normal(4, x.numel(), seed=7).detach() @ value(x), backward)


@pytest.mark.slow
def test_many_entries_that_vary_too_quickly_for_any_step_do_not_fail() -> None:
    speed = 1e12

    def waves(x: Tensor) -> Tensor:
        return torch.sin(1e3 * torch.sin(speed * x))

    def slope(x: Tensor) -> Tensor:
        return 1e3 * speed * torch.cos(speed * x) * torch.cos(1e3 * torch.sin(speed * x))

    assert gradcheck(_dense(waves, slope), normal(60, seed=7)).verdict is Verdict.INCONCLUSIVE
    assert gradcheck(claimed(waves, slope), normal(10_000, seed=7)).undetermined > 9_800


def test_rounding_in_place_of_many_zeros_passes() -> None:
    def noisy(grad: Tensor, x: Tensor) -> Tensor:
        return grad.sum() * torch.where(torch.arange(x.numel()) < 4, x.cos(), 1e-17)

    partly = with_backward(lambda x: x[:4].sin().sum().repeat(3), noisy)
    assert gradcheck(partly, normal(100, seed=7)).verdict is Verdict.PASS


def test_of_a_large_wrong_elementwise_function_only_a_sample_takes_the_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(context: JudgingContext, chosen: Tensor) -> Judged:
        sizes.append(len(chosen) * context.sampled.value.numel())
        return judge_by_ladder(context, chosen)

    def counted_along_line(context: JudgingContext) -> Judged:
        sizes.append(context.sampled.value.numel())
        return judge_along_line(context)

    monkeypatch.setattr(columns, "judge_by_ladder", counted)
    monkeypatch.setattr(directional, "judge_along_line", counted_along_line)
    x = normal(40_000, seed=7)
    result = gradcheck(with_backward(torch.sin, lambda grad, x: 1.01 * grad * x.cos()), x)
    assert result.mismatched == 40_000
    assert sizes and max(sizes) <= 1024
