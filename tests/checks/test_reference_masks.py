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
