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


def normal(*shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a differentiated tensor of normal numbers, drawn in float64 unless they are complex."""
    drawn_as = dtype if dtype.is_complex else torch.float64
    values = torch.randn(shape, dtype=drawn_as, generator=torch.Generator().manual_seed(seed))
    return (scale * values).to(dtype).requires_grad_()


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


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that refuses to be called with many points at once, so that each sample is one forward."""
    shapes: list[torch.Size] = []

    def called(first: Tensor, *others: Any) -> Any:
        shapes.append(first.shape)
        if first.shape != shapes[0] or float(first.detach().reshape(-1)[0]) == torch.inf:  # vmap rejects this branch
            raise ValueError("one point at a time")
        return function(first, *others)

    return called


def with_changed_gradient(
    forward: Callable[[Tensor], Tensor], change: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Return a Function of one input whose gradient is `change` of torch's."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            (right,) = torch.autograd.grad(forward(leaf), leaf, grad)
        return change(right)

    return with_backward(forward, backward)


def with_scaled_gradient(function: Callable[[Tensor], Tensor], factor: float) -> Callable[[Tensor], Tensor]:
    """Return the function with its gradient multiplied by a factor."""
    wrong = with_backward(torch.clone, lambda grad, _: grad * factor)
    return lambda x: function(wrong(x))


def scaled_at(place: int, relative: float) -> Callable[[Tensor], Tensor]:
    """Return a change of a gradient: a relative error in its entry `place`, counted in memory order."""

    def change(gradient: Tensor) -> Tensor:
        wrong = gradient.reshape(-1).clone()
        wrong[place] *= 1 + relative
        return wrong.reshape(gradient.shape)

    return change


def wrong_places(result: CheckResult) -> set[tuple[str | None, tuple[int, ...]]]:
    """Return (input, index) of the inputs of all mismatched elements."""
    return {
        (finding.wrt, element.input_index)
        for finding in result.findings
        for element in finding.elements
        if element.verdict is ElementVerdict.MISMATCH
    }
