"""Helpers: Functions with a given backward, and results of the contract check."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Function

from gradverify.checks.registry import run_check
from gradverify.result import CheckResult, Verdict
from tests.core.support import ALONE, double, problem_of

X = double([0.3, -1.2, 0.7, 2.1, -0.4])
Y = double([1.1, 0.6, -0.9, 0.2, 1.7])


def contract(function: Callable[..., Any], *inputs: Any, check: str = "contract") -> CheckResult:
    """Return the result of the contract check, or of another check, on the function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_check(check, problem_of(function, *inputs), ALONE)


def failing(result: CheckResult) -> set[str]:
    """Return the codes that fail the check."""
    return {finding.code for finding in result.findings if finding.verdict is Verdict.FAIL}


def remarked(result: CheckResult) -> set[str]:
    """Return the codes of findings that do not fail the check."""
    return {finding.code for finding in result.findings if finding.verdict is Verdict.PASS}


def sine(backward: Callable[[Any, Tensor, Tensor], Any]) -> Callable[[Tensor], Tensor]:
    """Return sin with this backward(ctx, x, g)."""

    class Sine(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return backward(ctx, ctx.saved_tensors[0], g)

    return Sine.apply


def pair(backward: Callable[..., Any], *, materialize: bool = True) -> Callable[[Tensor, Tensor], Any]:
    """Return (x·y, x + y) with this backward(ctx, x, y, g1, g2)."""

    class Pair(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            ctx.set_materialize_grads(materialize)
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx: Any, g1: Tensor, g2: Tensor) -> Any:
            return backward(ctx, *ctx.saved_tensors, g1, g2)

    return Pair.apply


def product(backward: Callable[..., Any]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return x·y with this backward(ctx, x, y, g)."""

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return backward(ctx, *ctx.saved_tensors, g)

    return Product.apply
