"""Jacobians too large to hold, of a backward in low precision: its rounding hides no single wrong entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, relu

from gradverify.core import jacobians
from gradverify.core.decide.context import MeasuredProblem
from gradverify.core.strategy.random_sketch import UnnamedError
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

    weight = normal(WIDTH, ROWS, scale=0.1) if function is rectified else normal(WIDTH)
    inputs = [each.detach().to(dtype).requires_grad_() for each in (normal(ROWS, WIDTH), weight)]
    return gradcheck(Planted.apply, *inputs)


def last_times(factor: float) -> Change:
    """Return a change of the last entry."""

    def changed(gradient: Tensor) -> Tensor:
        gradient[-1, -1] *= factor
        return gradient

    return changed


@pytest.mark.parametrize("may_be_rounding", [False, True])
def test_sums_that_differ_by_more_than_rounding_are_not_compared_again_in_low_precision(
    monkeypatch: pytest.MonkeyPatch, may_be_rounding: bool
) -> None:
    in_float64: list[bool] = []

    def unnamed(measured: MeasuredProblem, entrywise: MeasuredProblem) -> Any:
        in_float64.append(measured.backward_in_float64 is not None)
        raise UnnamedError("sums differ", may_be_rounding=may_be_rounding)

    monkeypatch.setattr(jacobians, "compare_by_random_sums", unnamed)
    assert found(normalised, torch.float32).verdict is Verdict.INCONCLUSIVE
    assert in_float64 == ([True, False] if may_be_rounding else [True])


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
    assert ("and so is backward" in result.message) is (dtype is not torch.float64)


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


def centred(x: Tensor, bias: Tensor) -> Tensor:
    """Depend on the bias only up to rounding."""
    return (x + bias) - (x + bias).mean(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_of_an_input_that_changes_nothing_is_no_error(dtype: torch.dtype) -> None:
    assert found(centred, dtype).verdict is Verdict.PASS


class Unmoved(torch.autograd.Function):
    """Does not depend on the large offset; in low precision backward claims that it does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, offset: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return layer_norm(x, (x.shape[-1],)) + 0 * offset

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        (x,) = ctx.saved_tensors
        given = x.detach().requires_grad_()
        with torch.enable_grad():
            (first,) = torch.autograd.grad(layer_norm(given, (x.shape[-1],)), given, cotangent)
        claimed = 0.0 if x.dtype is torch.float64 else 3e-8
        return first, claimed * cotangent.sum(0)


def small(x: Tensor, weight: Tensor) -> Tensor:
    return 1e-3 * normalised(x, weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_small_outputs_need_cotangents_that_the_dtype_holds(dtype: torch.dtype) -> None:
    assert found(small, dtype).verdict is Verdict.PASS
    assert found(small, dtype, last_times(1.5)).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_claim_of_low_precision_only_is_found_where_the_derivative_is_zero(dtype: torch.dtype) -> None:
    x, offset = (each.detach().to(dtype).requires_grad_() for each in (normal(ROWS, WIDTH), 1e7 * normal(WIDTH)))
    assert gradcheck(Unmoved.apply, x, offset).verdict is Verdict.FAIL


def through_float32(gradient: Tensor) -> Tensor:
    return gradient.float().to(gradient.dtype)


def test_backward_that_computes_in_float32_inside_is_right() -> None:
    assert found(normalised, torch.float32, through_float32).verdict is Verdict.PASS
    assert found(normalised, torch.bfloat16, through_float32).verdict is not Verdict.FAIL
    assert found(normalised, torch.float32, lambda gradient: 1.3 * through_float32(gradient)).verdict is Verdict.FAIL


def test_backward_that_raises_in_float64_later_keeps_its_own_numbers() -> None:
    calls = []

    def change(gradient: Tensor) -> Tensor:
        calls.append(gradient.dtype)
        if calls.count(torch.float64) > 4:
            raise RuntimeError("enough")
        return gradient

    assert found(normalised, torch.float32, change).verdict is not Verdict.FAIL
    assert calls.count(torch.float64) > 4


class SoftmaxInFloat32(torch.autograd.Function):
    """Computes in float32, whatever it is given; backward is half of what it should be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.float().softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return 0.5 * y * (cotangent - (cotangent * y).sum(-1, keepdim=True))


def test_wrong_entries_of_a_forward_that_takes_float32_only_are_confirmed_with_its_rounding() -> None:
    result = gradcheck(SoftmaxInFloat32.apply, normal(4, 1000).detach().float().requires_grad_())
    assert result.verdict is Verdict.FAIL
