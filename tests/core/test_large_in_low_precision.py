"""Jacobians too large to hold, of a backward in low precision: its rounding hides no single wrong entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, relu

from gradverify.result import CheckResult, Method, Verdict
from tests.core.support import gradcheck, normal

ROWS, WIDTH = 65, 257
Change = Callable[[Tensor], Tensor]  # the gradient by the first input -> what backward returns instead


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return layer_norm(x, (x.shape[-1],), weight)


def rectified(x: Tensor, weight: Tensor) -> Tensor:
    return relu(x @ weight)


def found(function: Callable[..., Tensor], dtype: torch.dtype, change: Change = torch.clone) -> CheckResult:
    """Check a function whose gradient by its first input is changed."""

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Tensor) -> Tensor:
            ctx.save_for_backward(*given)
            with torch.no_grad():
                return function(*given)

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, ...]:
            inputs = [each.detach().requires_grad_() for each in ctx.saved_tensors]
            with torch.enable_grad():
                first, *others = torch.autograd.grad(function(*inputs), inputs, cotangent)
            return change(first), *others

    weight = normal(WIDTH) if function is normalised else normal(WIDTH, ROWS, scale=0.1)
    inputs = [each.detach().to(dtype).requires_grad_() for each in (normal(ROWS, WIDTH), weight)]
    return gradcheck(Planted.apply, *inputs)


def last_times(factor: float) -> Change:
    """Return a change of the last entry."""

    def changed(gradient: Tensor) -> Tensor:
        gradient[-1, -1] *= factor
        return gradient

    return changed


def in_low_precision_only(change: Change) -> Change:
    return lambda gradient: gradient if gradient.dtype is torch.float64 else change(gradient)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [normalised, rectified])
def test_right_gradient_passes_and_would_show_a_wrong_entry(
    function: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    result = found(function, dtype)
    assert (result.verdict, result.method) == (Verdict.PASS, Method.PROBED)
    assert result.detection_limit is None or result.detection_limit < 1
    assert ("so is backward" in result.message) is (dtype is not torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [normalised, rectified])
def test_one_wrong_entry_of_the_gradient_is_found(function: Callable[..., Tensor], dtype: torch.dtype) -> None:
    result = found(function, dtype, last_times(1.5))
    assert result.verdict is Verdict.FAIL
    (finding,) = (each for each in result.findings if each.verdict is Verdict.FAIL)
    assert {element.input_index for element in finding.elements} == {(ROWS - 1, WIDTH - 1)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_entry_that_is_wrong_in_low_precision_only_is_found(dtype: torch.dtype) -> None:
    result = found(normalised, dtype, in_low_precision_only(last_times(3.0)))
    assert result.verdict is Verdict.FAIL


def refuses_float64(gradient: Tensor) -> Tensor:
    if gradient.dtype is torch.float64:
        raise TypeError("float32 only")
    return gradient


def test_backward_that_takes_no_float64_is_judged_with_the_noise_of_its_forward() -> None:
    result = found(normalised, torch.float32, refuses_float64)
    assert result.verdict is Verdict.PASS
    wrong = found(normalised, torch.float32, lambda gradient: 1.3 * refuses_float64(gradient))
    assert wrong.verdict is not Verdict.PASS
