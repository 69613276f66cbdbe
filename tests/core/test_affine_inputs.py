"""Inputs in which a function is affine: one step per column is enough, and overlooks no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from gradverify.core.backward.batched_vjp import jacobian
from gradverify.core.decide.columns import KnownVerdicts
from gradverify.core.decide.context import judging_context, measure_problem
from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.model.tape import record
from gradverify.core.strategy.affine_inputs import affine_column_groups
from gradverify.result import Verdict
from tests.core.support import ALONE, gradcheck, problem_of, with_backward


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Return normal random numbers that require a gradient."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


WEIGHTS = drawn(40, 60, seed=9).detach()


def known_of(function: Callable[..., Any], *inputs: Tensor) -> KnownVerdicts | None:
    """Return the single columns that are judged by one step."""
    problem = problem_of(function, *inputs)
    measured = measure_problem(made_repeatable(problem, record(problem), 0), ALONE)
    claimed = jacobian(measured.backward).T.contiguous()
    groups = single_columns(*claimed.shape, claimed.device)
    return affine_column_groups(
        judging_context(measured.sampled, measured.noise, measured.lengths, groups, claimed, ALONE), seed=0
    )


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.matmul, ((16, 12), (12, 10))),
        (lambda x: x.cumsum(0) + 1e3, ((300,),)),
        (lambda x, y, z: x @ y @ z, ((9, 8), (8, 7), (7, 9))),
        (lambda x, w: functional.conv2d(x, w, padding=1), ((1, 2, 8, 8), (3, 2, 3, 3))),
    ],
)
def test_all_columns_of_multilinear_functions_are_judged_by_one_step(
    function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]
) -> None:
    inputs = [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    known = known_of(function, *inputs)
    assert known is not None
    assert len(known.chosen) == sum(x.numel() for x in inputs)
    assert not bool(known.judged.code.any())


def test_weight_and_bias_of_layer_norm_are_judged_by_one_step() -> None:
    x, w, b = drawn(20, 16), drawn(16, seed=1), drawn(16, seed=2)
    known = known_of(lambda x, w, b: functional.layer_norm(x, (16,), w, b), x, w, b)
    assert known is not None
    assert known.chosen.tolist() == list(range(320, 352))


def test_column_with_wrong_entry_is_left_to_the_other_passes() -> None:
    off = torch.ones(3, 40, dtype=torch.float64)
    off[1, 7] += 1e-9
    function = with_backward(lambda x: x @ WEIGHTS, lambda g, x: (g @ WEIGHTS.T) * off)
    known = known_of(function, drawn(3, 40))
    assert known is not None
    assert known.chosen.tolist() == [number for number in range(120) if number != 47]


@pytest.mark.parametrize(
    "function",
    [
        torch.sin,
        lambda x: x.softmax(-1),
        lambda x: x @ WEIGHTS + 1e-6 * (x @ WEIGHTS) ** 2,
        lambda x: (100 * x @ WEIGHTS).sin().abs(),
    ],
)
def test_curved_function_has_no_affine_columns(function: Callable[..., Any]) -> None:
    assert known_of(function, drawn(3, 40)) is None


@pytest.mark.slow
def test_kink_at_point_is_seen_with_one_sided_steps() -> None:
    at_zero = torch.zeros(3, 40, dtype=torch.float64, requires_grad=True)
    assert known_of(lambda x: x @ WEIGHTS + 1e-9 * (x @ WEIGHTS).abs(), at_zero) is None
    right = with_backward(lambda x: (x @ WEIGHTS).relu(), lambda g, x: g @ WEIGHTS.T)
    result = gradcheck(right, at_zero)
    assert (result.verdict, result.kinks) == (Verdict.PASS, 3 * 40 * 60)


def dip(x: Tensor) -> Tensor:
    """Return an odd function of the distance from the nearest integer that is negligible from 1e-3 on."""
    off = x - x.round()
    return off * torch.exp(-((off / 1e-4) ** 2))


def test_variation_below_the_step_is_seen() -> None:
    x = torch.ones(6, 40, dtype=torch.float64, requires_grad=True)
    without = with_backward(lambda x: x @ WEIGHTS, lambda g, x: g @ WEIGHTS.T)
    assert known_of(without, x) is not None
    assert known_of(with_backward(lambda x: (x + 1e-3 * dip(x)) @ WEIGHTS, lambda g, x: g @ WEIGHTS.T), x) is None


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
    x, by = drawn(rows, inner, seed=seed), drawn(inner, columns, seed=seed + 1).detach()
    place = seed % x.numel()
    off = 1 + error * (torch.arange(x.numel()) == place).view_as(x)
    wrong = with_backward(lambda x: x @ by, lambda g, x: (g @ by.T) * off)
    result = gradcheck(wrong, x)
    assert result.verdict is Verdict.FAIL
    assert {element.input_index for finding in result.findings for element in finding.elements} == {
        (place // inner, place % inner)
    }
    assert gradcheck(lambda x: x @ by, x).verdict is Verdict.PASS
