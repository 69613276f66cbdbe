"""Inputs in which a function is affine: one step per column is enough, and overlooks no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import (
    gradcheck,
    normal,
    one_by_one,
    scaled_at,
    with_backward,
    with_changed_gradient,
    wrong_places,
)

SIZE = 200
WEIGHTS = normal(40, 60, seed=9).detach()
DENSE = normal(SIZE, 60, seed=9).detach()


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


@pytest.mark.parametrize(
    "bent",
    [
        lambda y: y + 1e-6 * y**2,
        lambda y: y + 1e-6 * y.abs(),
        lambda y: y + 1e-6 * (100 * y).sin(),
    ],
)
def test_slope_of_the_affine_part_alone_fails(bent: Callable[[Tensor], Tensor]) -> None:
    affine = with_backward(lambda x: bent(x @ DENSE), lambda g, x: g @ DENSE.T)
    assert gradcheck(affine, normal(SIZE)).verdict is Verdict.FAIL
    assert gradcheck(lambda x: bent(x @ DENSE), normal(SIZE)).verdict is Verdict.PASS


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


def test_variation_below_the_step_is_seen() -> None:
    x = torch.ones(SIZE, dtype=torch.float64, requires_grad=True)
    without = with_backward(lambda x: x @ DENSE, lambda g, x: g @ DENSE.T)
    assert gradcheck(without, x).verdict is Verdict.PASS
    within = with_backward(lambda x: (x + 1e-3 * dip(x)) @ DENSE, lambda g, x: g @ DENSE.T)
    assert gradcheck(within, x).verdict is Verdict.FAIL


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 40),
    st.integers(20, 60),
    st.integers(20, 60),
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
