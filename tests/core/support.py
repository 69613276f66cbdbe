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


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Return a differentiated float64 tensor of standard normal numbers."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def away_from_zero(*shape: int, seed: int = 0) -> Tensor:
    """Return a differentiated float64 tensor of numbers of either sign with magnitudes between 1/2 and 3/2."""
    generator = torch.Generator().manual_seed(seed)
    magnitude = 0.5 + torch.rand(shape, dtype=torch.float64, generator=generator)
    return (magnitude * torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0)).requires_grad_()


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


def derivative_of(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return torch's derivative of an elementwise function."""

    def derivative(x: Tensor) -> Tensor:
        inside = x.detach().requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad(function(inside).sum(), inside)
        return found

    return derivative


def wrong_at(function: Callable[[Tensor], Tensor], place: int, error: float) -> Callable[[Tensor], Tensor]:
    """Return an elementwise Function whose derivative is wrong by a relative error, only in the entry `place`."""
    derivative = derivative_of(function)
    return claimed(function, lambda x: derivative(x) * (1 + error * (torch.arange(len(x)) == place)))


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
