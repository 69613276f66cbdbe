"""Affine and smooth inputs: one step per column is enough, and overlooks no error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.deadline import Deadline, OutOfTime
from gradverify.result import Verdict
from tests.core.support import (
    ALONE,
    gradcheck,
    normal,
    one_by_one,
    problem_of,
    scaled_at,
    with_backward,
    with_changed_gradient,
    wrong_places,
)

SIZE = 200
WEIGHTS = normal(40, 60, seed=9).detach()
DENSE = normal(SIZE, 60, seed=9).detach()
FEW = 80  # where no forwards are counted


# Every output depends on every input. Curved functions take six samples for each column, affine ones one or few.
AFFINE: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (lambda x: x @ DENSE, (SIZE,)),
    (lambda x: x.cumsum(0) + 1e3, (300,)),
    (lambda x, y: (x @ DENSE) * (y @ DENSE), (SIZE, SIZE)),
]


@pytest.mark.parametrize(("function", "sizes"), AFFINE)
def test_affine_function_takes_few_forwards_for_each_column(
    function: Callable[..., Any], sizes: tuple[int, ...]
) -> None:
    inputs = [normal(size, seed=seed) for seed, size in enumerate(sizes)]
    result = gradcheck(one_by_one(function), *inputs)
    assert result.verdict is Verdict.PASS
    assert result.evaluations.forward <= 2 * sum(sizes)


def test_input_in_which_a_function_is_affine_takes_fewer_forwards() -> None:
    curved, affine = normal(SIZE), normal(SIZE, seed=1)
    result = gradcheck(one_by_one(lambda x, w: (0.05 * x @ DENSE).tanh() * (w @ DENSE)), curved, affine)
    assert result.verdict is Verdict.PASS
    assert 6 * SIZE < result.evaluations.forward <= 10 * SIZE


@pytest.mark.parametrize(("error", "verdict"), [(1e-9, Verdict.PASS), (1e-6, Verdict.FAIL)])
def test_claim_that_one_step_contradicts_is_judged_by_more_steps(error: float, verdict: Verdict) -> None:
    function = with_changed_gradient(lambda x: x @ DENSE, scaled_at(47, error))
    result = gradcheck(one_by_one(function), normal(SIZE))
    assert result.verdict is verdict
    assert wrong_places(result) == (set() if verdict is Verdict.PASS else {("x", (47,))})


@pytest.mark.slow
@pytest.mark.parametrize(
    "bent",
    [
        lambda y: y + 1e-6 * y**2,
        lambda y: y + 1e-6 * y.abs(),
        lambda y: y + 1e-6 * (100 * y).sin(),
    ],
)
def test_slope_of_the_affine_part_alone_fails(bent: Callable[[Tensor], Tensor]) -> None:
    by = DENSE[:FEW]
    affine = with_backward(lambda x: bent(x @ by), lambda g, x: g @ by.T)
    assert gradcheck(affine, normal(FEW)).verdict is Verdict.FAIL
    assert gradcheck(lambda x: bent(x @ by), normal(FEW)).verdict is Verdict.PASS


@pytest.mark.slow
def test_kink_at_the_point_of_a_function_that_is_affine_on_each_side_is_seen() -> None:
    at_zero = torch.zeros(3, 40, dtype=torch.float64, requires_grad=True)
    right = with_backward(lambda x: (x @ WEIGHTS).relu(), lambda g, x: g @ WEIGHTS.T)
    result = gradcheck(right, at_zero)
    assert (result.verdict, result.kinks) == (Verdict.PASS, 3 * 40 * 60)


def dip(x: Tensor) -> Tensor:
    """Return an odd function of the distance from the nearest integer that is negligible from 1e-2 on."""
    off = x - x.round()
    return off * torch.exp(-((off / 1e-3) ** 2))


@pytest.mark.slow
def test_variation_below_the_step_is_seen() -> None:
    x, by = torch.ones(FEW, dtype=torch.float64, requires_grad=True), DENSE[:FEW]
    without = with_backward(lambda x: x @ by, lambda g, x: g @ by.T)
    assert gradcheck(without, x).verdict is Verdict.PASS
    within = with_backward(lambda x: (x + 1e-3 * dip(x)) @ by, lambda g, x: g @ by.T)
    assert gradcheck(within, x).verdict is Verdict.FAIL


@pytest.mark.slow
@settings(deadline=None, max_examples=12)
@given(
    st.integers(1, 12),
    st.integers(20, 30),
    st.integers(20, 30),
    st.integers(0, 1000),
    st.sampled_from([1e-6, -1e-3, -2.0]),
)
def test_wrong_entry_of_linear_map_is_found(rows: int, inner: int, columns: int, seed: int, error: float) -> None:
    x, by = normal(rows, inner, seed=seed), normal(inner, columns, seed=seed + 1).detach()
    place = seed % x.numel()
    off = 1 + error * (torch.arange(x.numel()) == place).view_as(x)
    wrong = with_backward(lambda x: x @ by, lambda g, x: (g @ by.T) * off)
    result = gradcheck(wrong, x)
    assert result.verdict is Verdict.FAIL
    assert wrong_places(result) == {("x", divmod(place, inner))}
    assert gradcheck(lambda x: x @ by, x).verdict is Verdict.PASS


MATRIX, RIGHT_SIDE = normal(4, 4, seed=4), normal(4, seed=5)


def solve(change: Callable[[Tensor], Tensor] = lambda gradient: gradient) -> Callable[..., Any]:
    """Return a⁻¹ b, one system per call, with `change` of its gradient by a."""

    def backward(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        by_b = torch.linalg.solve(a.mT, grad)
        return change(-torch.outer(by_b, torch.linalg.solve(a, b))), by_b

    return one_by_one(with_backward(torch.linalg.solve, backward))


def test_smooth_function_takes_few_forwards_for_each_input() -> None:
    result = gradcheck(solve(), MATRIX, RIGHT_SIDE)
    assert result.verdict is Verdict.PASS
    assert result.evaluations.forward <= 3 * 20 + 15


@pytest.mark.parametrize(("error", "verdict"), [(1e-9, Verdict.PASS), (1e-6, Verdict.FAIL), (-2.0, Verdict.FAIL)])
@pytest.mark.parametrize("place", range(0, 16, 5))
def test_wrong_entry_of_smooth_function_is_found(place: int, error: float, verdict: Verdict) -> None:
    result = gradcheck(solve(scaled_at(place, error)), MATRIX, RIGHT_SIDE)
    assert result.verdict is verdict
    assert wrong_places(result) == (set() if verdict is Verdict.PASS else {("x", divmod(place, 4))})


@pytest.mark.parametrize("factor", [1 + 1e-6, 1.01, -1.0])
def test_error_bars_of_a_mostly_wrong_function_hold(factor: float) -> None:
    result = gradcheck(solve(lambda gradient: factor * gradient), MATRIX, RIGHT_SIDE)
    exact = torch.func.jacrev(torch.linalg.solve)(MATRIX.detach(), RIGHT_SIDE.detach())
    assert result.verdict is Verdict.FAIL
    (finding,) = result.findings
    assert finding.elements
    for element in finding.elements:
        assert element.numeric is not None and element.error_bar is not None
        truth = float(exact[(*element.output_index, *element.input_index)])
        assert abs(element.numeric - truth) <= element.error_bar


def test_small_entry_claimed_to_be_zero_beside_large_ones_fails() -> None:
    small = torch.full((4, 4), 1e-6, dtype=torch.float64) + torch.eye(4, dtype=torch.float64)

    def forward(x: Tensor) -> Tensor:
        return small @ x.exp()

    wrong = with_backward(forward, lambda g, x: g * x.exp())
    result = gradcheck(one_by_one(wrong), normal(4))
    assert (result.verdict, len(wrong_places(result))) == (Verdict.FAIL, 4)
    assert gradcheck(one_by_one(forward), normal(4)).verdict is Verdict.PASS


@pytest.mark.parametrize(("share", "verdict"), [(1 / 3, Verdict.PASS), (1 / 2, Verdict.FAIL)])
def test_claims_at_a_tie_are_judged_as_those_at_a_kink(share: float, verdict: Verdict) -> None:
    tied = torch.ones(3, dtype=torch.float64, requires_grad=True)
    maximum = with_backward(lambda x: x.amax().exp(), lambda g, x: share * g * x.amax().exp() * torch.ones(3))
    result = gradcheck(one_by_one(maximum), tied)
    assert result.verdict is verdict
    assert result.kinks == (3 if verdict is Verdict.PASS else 0)


def test_kinks_whose_mean_slope_is_claimed_are_counted() -> None:
    at_zero, weights = torch.zeros(6, dtype=torch.float64, requires_grad=True), normal(6, 3).detach()
    result = gradcheck(one_by_one(lambda x: (x.abs() @ weights).exp()), at_zero)  # torch's derivative of |x| there is 0
    assert (result.verdict, result.kinks) == (Verdict.PASS, 18)


def test_quick_variation_of_a_curved_function_is_seen() -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.stack([(x + 1e-3 * dip(x)).prod(), x.exp().sum()])

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g[0] * x.prod() / x + g[1] * x.exp()

    x = torch.ones(6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(one_by_one(with_backward(forward, backward)), x).verdict is Verdict.FAIL
    assert gradcheck(one_by_one(forward), x).verdict is Verdict.PASS


def test_slope_of_a_secant_is_no_derivative() -> None:
    def forward(x: Tensor) -> Tensor:
        return x.exp().cumprod(0)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        steps = 1e-3 * torch.eye(len(x), dtype=torch.float64)
        return torch.stack([(g * (forward(x + step) - forward(x - step))).sum() / 2e-3 for step in steps])

    result = gradcheck(one_by_one(with_backward(forward, backward)), 0.1 * normal(6).detach().requires_grad_())
    assert result.verdict is Verdict.FAIL


def bump(x: Tensor) -> Tensor:
    """Return an odd function of the distance from the nearest integer that is zero from 1e-2 on."""
    off = x - x.round()
    return torch.where(off.abs() < 1e-2, off * (1 - (off / 1e-2) ** 2) ** 2, 0.0)


def test_output_that_moves_only_below_the_step_and_is_claimed_to_be_constant_fails() -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.cat([bump(x).cumsum(0), x.cumsum(0)])

    wrong = with_backward(forward, lambda g, x: g[len(x) :].flip(0).cumsum(0).flip(0))
    result = gradcheck(one_by_one(wrong), torch.ones(6, dtype=torch.float64, requires_grad=True))
    assert (result.verdict, len(wrong_places(result))) == (Verdict.FAIL, 6)


@pytest.mark.parametrize("seed", range(4))
def test_forward_on_a_stair_of_low_precision_is_not_said_to_be_constant(seed: int) -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().exp().cumsum(0).numpy().astype("float16").astype("float64"))

    result = gradcheck(one_by_one(with_backward(forward, lambda g, x: 0 * g)), normal(3, seed=seed))
    assert result.verdict is Verdict.INCONCLUSIVE


def test_both_parts_of_complex_inputs_may_move_together() -> None:
    by = normal(150, 60, seed=9).detach().to(torch.complex128)
    assert gradcheck(lambda z: z @ by, normal(150, dtype=torch.complex128)).verdict is Verdict.PASS


def test_running_out_of_time_during_single_steps_is_inconclusive() -> None:
    calls, deadline = 0, Deadline(at=math.inf, seconds=1.0)

    def forward(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 40:
            raise OutOfTime(deadline)
        return x @ DENSE[:30]

    affine = with_backward(forward, lambda g, x: DENSE[:30] @ g)
    result = run_check("gradcheck", replace(problem_of(one_by_one(affine), normal(30)), deadline=deadline), ALONE)
    assert result.verdict is Verdict.INCONCLUSIVE
