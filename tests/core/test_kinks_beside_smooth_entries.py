"""Elementwise functions with kinks at or near some entries: errors there and elsewhere are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import away_from_zero, claimed, gradcheck, normal, with_backward, wrong_places

SIZE = 400
Kinked = tuple[Callable[..., Tensor], Callable[..., Tensor], float]  # function, derivative, place of the kink

KINKED: list[Kinked] = [
    (torch.relu, lambda x: (x > 0).double(), 0.0),
    (torch.abs, torch.sign, 0.0),
    (lambda x: x.clamp(0.0, 1.5), lambda x: ((x > 0) & (x < 1.5)).double(), 1.5),
    (lambda x: (x.abs() + 0.1).log(), lambda x: x.sign() / (x.abs() + 0.1), 0.0),
    (lambda x: x * x.abs(), lambda x: 2 * x.abs(), 0.0),
]


def with_entry(value: float, place: int, size: int = SIZE) -> Tensor:
    """Return numbers with magnitudes between 1/2 and 3/2, and `value` at `place`."""
    x = away_from_zero(size, seed=3).detach()
    x[place] = value
    return x.requires_grad_()


def test_kinks_are_counted_and_wrong_slopes_there_and_elsewhere_fail() -> None:
    x = away_from_zero(500).detach()
    x[[3, 77]] = 0.0
    x[200] = 1e-5
    result = gradcheck(torch.relu, x.requires_grad_())
    assert (result.verdict, result.kinks, result.entries) == (Verdict.PASS, 2, 500 * 500)
    wrong = gradcheck(claimed(torch.relu, lambda x: torch.where(x > 0, 1.0, -0.5).double()), x)
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, int((x <= 0).sum()))


@pytest.mark.parametrize("seed", range(4))
def test_wrong_entry_in_flat_part_of_relu_is_found(seed: int) -> None:
    x = normal(60, seed=seed)
    place = int((x + 0.3).abs().argmin())
    wrong = claimed(torch.relu, lambda x: (x > 0) + 1e-3 * (torch.arange(60) == place))
    assert gradcheck(wrong, x).mismatched == 1
    assert gradcheck(torch.relu, x).verdict is Verdict.PASS


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(KINKED),
    st.integers(0, SIZE - 1),
    st.floats(-5, -2),
    st.sampled_from([-1.0, 1.0]),
    st.sampled_from([1e-6, -1e-3, 1.0]),
)
def test_wrong_entry_near_kink_is_named(case: Kinked, place: int, exponent: float, side: float, error: float) -> None:
    function, slope, kink = case
    x = with_entry(kink + side * 10.0**exponent, place)
    assert gradcheck(claimed(function, slope), x).verdict is Verdict.PASS
    # The error is relative to the larger of the slopes on both sides, so that a zero slope is changed as well.
    size = torch.maximum(slope(x - 0.1).abs(), slope(x + 0.1).abs()) if kink != 0.0 else slope(x.detach().abs()).abs()
    wrong = claimed(function, lambda x: slope(x) + error * size.detach() * (torch.arange(SIZE) == place))
    result = gradcheck(wrong, x)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    assert result.findings[0].elements[0].input_index == (place,)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-3, 0.08])
@pytest.mark.parametrize("source", [1, 2, 5, 8])
def test_kink_does_not_hide_missing_off_diagonal_entry(size: float, source: int) -> None:
    """Output 0 has a kink nearby and also depends on entry `source`, which backward leaves out."""

    def forward(x: Tensor) -> Tensor:
        result = x.abs()
        result[0] += size * x[source].sin()
        return result

    x = normal(100).detach()
    x[0] = -2e-5
    result = gradcheck(with_backward(forward, lambda grad, x: grad * x.sign()), x.requires_grad_())
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    assert gradcheck(torch.abs, x).verdict is Verdict.PASS


@pytest.mark.parametrize("error", [1e-6, 1e-5, 1e-4, 1e-2])
def test_kink_of_one_input_does_not_hide_small_errors_by_others(error: float) -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * torch.where(x == 0, 0.3, x.cos() * (1 + error))

    x = torch.tensor([0.0, 0.5, -1.3, 0.8], dtype=torch.float64, requires_grad=True)
    result = gradcheck(with_backward(lambda x: x.sin().sum() + x[0].abs(), backward), x)
    assert wrong_places(result) == {("x", (place,)) for place in (1, 2, 3)}


def test_off_diagonal_entry_that_only_small_steps_show_is_found() -> None:
    """Output 3 depends on input 4 within 1e-4 of zero, which backward leaves out."""

    class Meddling(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
            ctx.save_for_backward(x)
            ctx.share = share
            result = x.relu()
            result[3] += share * x[4].clamp(-1e-4, 1e-4)
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            (x,) = ctx.saved_tensors
            return grad * (x > 0), None

    x = with_entry(1e-5, 3).detach()
    x[4] = -2e-5
    x.requires_grad_()
    assert gradcheck(lambda x: Meddling.apply(x, 0.5), x).verdict is Verdict.FAIL  # type: ignore[no-untyped-call]
    assert gradcheck(lambda x: Meddling.apply(x, 0.0), x).verdict is Verdict.PASS  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_zero_claimed_for_an_entry_on_a_stair_of_rounding_does_not_pass(precision: torch.dtype) -> None:
    def rounded(x: Tensor) -> Tensor:
        """Return x, with entry 17 rounded: constant over small steps, of slope one over large ones."""
        return torch.where(torch.arange(SIZE) == 17, x.to(precision).double(), x)

    dead = claimed(rounded, lambda _: (torch.arange(SIZE) != 17).double())
    assert gradcheck(dead, with_entry(0.77, 17)).verdict is not Verdict.PASS
    assert gradcheck(claimed(rounded, torch.ones_like), with_entry(0.77, 17)).verdict is not Verdict.FAIL
