"""Short ways to a problem and its verdict, for the tests of the mathematics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import Problem, bind
from gradverify.result import CheckResult, Element, ElementVerdict

ALONE = Settings(torch_gradcheck=TorchGradcheck.NEVER)


def double(values: Any) -> Tensor:
    """Return a float64 tensor that is differentiated."""
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def problem_of(function: Callable[..., Any], *inputs: Any) -> Problem:
    """Bind `function` to inputs named x, y, z, w."""
    return bind(function, inputs, names=tuple("xyzw"[: len(inputs)]))


def gradcheck(function: Callable[..., Any], *inputs: Any) -> CheckResult:
    """Run our gradcheck alone."""
    return run_check("gradcheck", problem_of(function, *inputs), ALONE)


def gradgradcheck(function: Callable[..., Any], *inputs: Any) -> CheckResult:
    """Run our gradgradcheck alone."""
    return run_check("gradgradcheck", problem_of(function, *inputs), ALONE)


def elements(result: CheckResult, verdict: ElementVerdict) -> Sequence[Element]:
    """Return the elements of a result that got this verdict."""
    return [element for finding in result.findings for element in finding.elements if element.verdict is verdict]


def claimed(value: Callable[..., Tensor], slope: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an elementwise Function that computes `value` and claims `slope` for its derivative."""

    class Claimed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return value(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * slope(x)

    return Claimed.apply


def with_backward(forward: Callable[..., Tensor], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Function of this forward and backward: (cotangent, *inputs) -> gradients."""

    class Claimed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return backward(grad, *ctx.saved_tensors)

    return Claimed.apply
