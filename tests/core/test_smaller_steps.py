"""Outputs with kinks or variation within the first steps are judged by samples at smaller steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.core.estimate.column_groups import ColumnGroups, GroupKind, groups_by_input, groups_of_outputs, members
from gradverify.result import Verdict
from tests.core.support import claimed, gradcheck

SIZE = 400


def around(kink: float, place: int, distance: float) -> Tensor:
    """Return numbers of either sign with magnitudes between 0.2 and 1.2, and kink + distance at `place`."""
    generator = torch.Generator().manual_seed(3)
    x = 0.2 + torch.rand(SIZE, dtype=torch.float64, generator=generator)
    x *= torch.where(torch.rand(SIZE, generator=generator) < 0.5, -1.0, 1.0)
    x[place] = kink + distance
    return x.requires_grad_()


KINKED: list[tuple[Callable[..., Tensor], Callable[..., Tensor], float]] = [
    (torch.relu, lambda x: (x > 0).double(), 0.0),
    (torch.abs, torch.sign, 0.0),
    (lambda x: x.clamp(0.0, 1.5), lambda x: ((x > 0) & (x < 1.5)).double(), 1.5),
    (lambda x: (x.abs() + 0.1).log(), lambda x: x.sign() / (x.abs() + 0.1), 0.0),
    (lambda x: x * x.abs(), lambda x: 2 * x.abs(), 0.0),
]


@pytest.mark.parametrize(("function", "slope", "kink"), KINKED)
@pytest.mark.parametrize("distance", [-1e-3, -2e-4, 2e-4, 1e-3])
def test_kink_near_one_entry_costs_few_more_forwards(
    function: Callable[..., Tensor], slope: Callable[..., Tensor], kink: float, distance: float
) -> None:
    result = gradcheck(claimed(function, slope), around(kink, 17, distance))
    assert (result.verdict, result.kinks, result.undetermined) == (Verdict.PASS, 0, 0)
    assert result.evaluations.forward <= 8


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(KINKED),
    st.integers(0, SIZE - 1),
    st.floats(-5, -2),
    st.sampled_from([-1.0, 1.0]),
    st.sampled_from([1e-6, -1e-3, 1.0]),
)
def test_wrong_entry_near_kink_is_found(
    case: tuple[Callable[..., Tensor], Callable[..., Tensor], float],
    place: int,
    exponent: float,
    side: float,
    error: float,
) -> None:
    function, slope, kink = case
    x = around(kink, place, side * 10.0**exponent)
    assert gradcheck(claimed(function, slope), x).verdict is Verdict.PASS
    # The error is relative to the larger of the slopes on both sides, so that a zero slope is changed as well.
    size = torch.maximum(slope(x - 0.1).abs(), slope(x + 0.1).abs()) if kink != 0.0 else slope(x.detach().abs()).abs()
    wrong = claimed(function, lambda x: slope(x) + error * size.detach() * (torch.arange(SIZE) == place))
    result = gradcheck(wrong, x)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    assert result.findings[0].elements[0].input_index == (place,)


def _steps_of(precision: torch.dtype, place: int) -> Callable[[Tensor], Tensor]:
    """Return the identity, with one entry rounded to `precision`."""
    return lambda x: torch.where(torch.arange(SIZE) == place, x.to(precision).double(), x)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_stair_of_rounding_is_not_taken_as_flat(precision: torch.dtype) -> None:
    dead = claimed(_steps_of(precision, 17), lambda _: (torch.arange(SIZE) != 17).double())
    assert gradcheck(dead, around(0.0, 17, 0.77)).verdict is not Verdict.PASS


def test_cost_of_a_million_entries_with_kinks() -> None:
    x = torch.randn(1_000_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    result = gradcheck(torch.relu, x)
    assert (result.verdict, result.undetermined) == (Verdict.PASS, 0)
    assert result.evaluations.forward <= 18


def test_only_columns_of_isolated_outputs_are_displaced() -> None:
    column_groups = groups_of_outputs(groups_by_input(2, 5, torch.device("cpu")), torch.tensor([1, 4]))
    assert members(column_groups, torch.tensor([1]))[0].tolist() == [5, 6, 7, 8, 9]
    column_groups = replace(column_groups, isolated=True)
    inside, place = members(column_groups, torch.tensor([1]))
    assert (inside.tolist(), place.tolist()) == ([6, 9], [0, 0])
    inside, place = members(column_groups, torch.tensor([0, 1]))
    assert (inside.tolist(), place.tolist()) == ([1, 4, 6, 9], [0, 0, 1, 1])


def test_all_columns_are_displaced_if_an_output_has_none() -> None:
    column_of = torch.tensor([[0, 1, -1], [2, -1, 3]])
    column_groups = ColumnGroups(
        kind=GroupKind.SHARED, colour=torch.tensor([0, 0, 1, 1]), column_of=column_of, isolated=True
    )
    assert members(groups_of_outputs(column_groups, torch.tensor([0, 1])), torch.tensor([1]))[0].tolist() == [2, 3]
    assert members(groups_of_outputs(column_groups, torch.tensor([0])), torch.tensor([1]))[0].tolist() == [2]


class Leaking(torch.autograd.Function):
    """Absolute values; the first one also depends on entry `source`, which backward leaves out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: float, source: int) -> Tensor:
        ctx.save_for_backward(x)
        result = x.abs()
        result[0] += size * x[source].sin()
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return grad * x.sign(), None, None


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-3, 0.08])
@pytest.mark.parametrize("source", range(1, 9))
def test_kink_does_not_hide_missing_entry(size: float, source: int) -> None:
    x = torch.randn(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[0] = -2e-5
    result = gradcheck(lambda x: Leaking.apply(x, size, source), x.requires_grad_())  # type: ignore[no-untyped-call]
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


class Meddling(torch.autograd.Function):
    """relu; output 3 also depends on input 4 near zero, which backward leaves out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        result = x.relu()
        result[3] += 0.5 * x[4].clamp(-1e-4, 1e-4)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad * (x > 0)


def test_missing_entry_is_found_with_smaller_steps() -> None:
    x = around(0.0, 3, 1e-5).detach()
    x[4] = -2e-5
    assert gradcheck(Meddling.apply, x.requires_grad_()).verdict is Verdict.FAIL
