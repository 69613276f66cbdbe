"""References that mask with -inf, as causal attention does, are compared in every entry."""

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
