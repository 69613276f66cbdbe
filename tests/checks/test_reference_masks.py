"""References with -inf in masks, or with values of their own, are compared in every entry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import CheckResult, Verdict


def masked_softmax(x: Tensor) -> Tensor:
    later = torch.ones(x.shape, dtype=torch.bool).triu(1)
    return x.masked_fill(later, -torch.inf).softmax(-1)


class WithoutRow(torch.autograd.Function):
    """The masked softmax, with a row of the gradient lost."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = masked_softmax(x.float()).to(x.dtype)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        wide, slope = y.float(), grad.float()
        dx = wide * (slope - (wide * slope).sum(-1, keepdim=True))
        dx[5] = 0
        return dx.to(y.dtype)


def result_of(function: Any, dtype: torch.dtype) -> CheckResult:
    x = torch.randn(9, 9, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    problem = bind(function, [x], names=["x"])
    return run_check("reference", replace(problem, reference=bind(masked_softmax, [x], names=["x"])), Settings())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lost_row_is_found_beside_masked_entries(dtype: torch.dtype) -> None:
    result = result_of(WithoutRow.apply, dtype)
    assert result.verdict is Verdict.FAIL
    assert {element.input_index[0] for finding in result.findings for element in finding.elements} == {5}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_masked_softmax_agrees_with_itself(dtype: torch.dtype) -> None:
    assert result_of(lambda x: masked_softmax(x.float()).to(x.dtype), dtype).verdict is Verdict.PASS


def turned(x: Tensor) -> Tensor:
    """Rotate pairs of columns by an angle that grows with the row; the angles do not depend on x."""
    angle = torch.arange(len(x), dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.1], dtype=torch.float64)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[:, :2], x[:, 2:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class TurnedWithoutRow(torch.autograd.Function):
    """The rotation, with a row of the gradient lost."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return turned(x.float()).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        with torch.enable_grad():
            x = torch.zeros(grad.shape, requires_grad=True)
            (dx,) = torch.autograd.grad(turned(x), x, grad.float())
        dx[700] = 0
        return dx.to(grad.dtype)


def test_angles_of_far_positions_do_not_hide_a_lost_row() -> None:
    """In bfloat16 an angle of 1,000 would be off by a turn, but no kernel computes it there."""
    x = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    wrong = replace(bind(TurnedWithoutRow.apply, [x], names=["x"]), reference=bind(turned, [x], names=["x"]))
    right = replace(bind(lambda x: turned(x.float()).to(x.dtype), [x], names=["x"]), reference=wrong.reference)
    assert run_check("reference", wrong, Settings()).verdict is Verdict.FAIL
    assert run_check("reference", right, Settings()).verdict is Verdict.PASS


def held_against(function: Any, reference: Any, x: Tensor) -> CheckResult:
    x = x.requires_grad_()
    problem = bind(function, [x], names=["x"])
    return run_check("reference", replace(problem, reference=bind(reference, [x], names=["x"])), Settings())


class Exponential(torch.autograd.Function):
    """exp with another last entry, and the gradient of exp."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, last: float) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return torch.cat((y[:-1], y.new_tensor([last])))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        (torch.inf, Verdict.PASS),
        (65504.0, Verdict.PASS),  # the largest number in float16, as by a kernel that saturates
        (3.0, Verdict.FAIL),
        (torch.nan, Verdict.FAIL),
        (-torch.inf, Verdict.FAIL),
    ],
)
@pytest.mark.parametrize("large", [12.0, 1000.0])  # beyond float16, and beyond float64
def test_values_where_the_reference_is_infinite(large: float, last: float, verdict: Verdict) -> None:
    x = torch.tensor([0.5, 1.0, large], dtype=torch.float16)
    result = held_against(lambda x: Exponential.apply(x, last), torch.exp, x)
    expected = Verdict.FAIL if large == 1000.0 and last == 65504.0 else verdict
    assert result.verdict is expected
    assert [(finding.code, finding.of) for finding in result.findings] == (
        [("GV705", "output")] if expected is Verdict.FAIL else []
    )


def scores(x: Tensor) -> Tensor:
    return x.masked_fill(torch.ones(x.shape, dtype=torch.bool).triu(1), -torch.inf)


def test_infinite_scores_are_those_of_the_reference() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(9, 9, generator=torch.Generator().manual_seed(0)).to(dtype)
        assert held_against(scores, scores, x).verdict is Verdict.PASS
        result = held_against(lambda x: scores(x).clamp(min=-1e4), scores, x)
        assert (result.verdict, result.findings[0].code) == (Verdict.FAIL, "GV705")
        assert "36 of 81 entries of output differ where one of the two is not finite" in result.message + str(
            [finding.message for finding in result.findings]
        )


class AtEdge(torch.autograd.Function):
    """arccos, whose domain ends at 1, with a changed output there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: float) -> Tensor:
        ctx.save_for_backward(x)
        return x.acos() + change * (x == 1).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return -grad * (1 - x * x).rsqrt(), None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_entry_at_the_edge_of_the_domain_is_no_plain_pass(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, 0.3, -0.5], dtype=dtype)
    assert held_against(lambda x: AtEdge.apply(x, 0.0), torch.acos, x).verdict is Verdict.PASS
    result = held_against(lambda x: AtEdge.apply(x, 0.7), torch.acos, x)
    assert (result.verdict, [finding.code for finding in result.findings]) == (Verdict.INCONCLUSIVE, ["GV705"])
    assert result.message == (
        "1 of 3 entries of output cannot be judged: by the reference, it is not finite there or close by"
    )


def test_a_reference_that_is_nan_cannot_judge() -> None:
    def without_row(x: Tensor) -> Tensor:
        return torch.cat((torch.full_like(x[:1], -torch.inf), x[1:])).softmax(-1)

    def zero_there(x: Tensor) -> Tensor:
        return torch.cat((torch.zeros_like(x[:1]), x[1:].softmax(-1)))

    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    result = held_against(zero_there, without_row, x)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.message.startswith("4 of 16 entries of output cannot be judged")
    assert held_against(without_row, without_row, x).verdict is Verdict.PASS


class Leaks(torch.autograd.Function):
    """The lower triangle, with a part of the largest entry where it is zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        y = x.tril()
        y[0, -1] = share * y.abs().max()
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.tril(), None


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_small_values_where_the_reference_is_zero(dtype: torch.dtype, scale: float) -> None:
    x = (scale * torch.randn(9, 9, generator=torch.Generator().manual_seed(0))).to(dtype)
    assert held_against(lambda x: Leaks.apply(x, 0.0), torch.tril, x).verdict is Verdict.PASS
    assert held_against(lambda x: Leaks.apply(x, 0.1), torch.tril, x).verdict is Verdict.FAIL
