"""Causes where the Jacobian is too large to be kept: looked for in some slices of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult, Method, Verdict
from tests.core.support import ALONE, problem_of


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def claiming(value: Callable[..., Tensor], vjp: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Function that computes `value` and whose backward is `vjp(grad, *inputs)`."""

    class Claiming(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return value(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return vjp(grad, *ctx.saved_tensors)

    return Claiming.apply


def checked(function: Callable[..., Any], *inputs: Tensor) -> CheckResult:
    return run_check("gradcheck", problem_of(function, *inputs), ALONE, diagnose)


def halved_at_the_end(grad: Tensor, x: Tensor) -> Tensor:
    result = grad * x.cos()
    result[-4:] *= 0.5
    return result


WRONG = {
    "missing-mask": (claiming(lambda x: x.clamp(0, 1.5), lambda g, x: g), (drawn(64, 64),), "at x < 0 or x > 1.5"),
    "constant-factor": (claiming(torch.exp, lambda g, x: 2 * g * x.exp()), (drawn(20_000),), "= 2 × numeric"),
    "boundary-tile": (claiming(torch.sin, halved_at_the_end), (drawn(128, 40),), "the last 4 of"),
    "swapped-inputs": (
        claiming(lambda x, y: x * y, lambda g, x, y: (g * x, g * y)),
        (drawn(4_000), drawn(4_000, seed=1)),
        "",
    ),
    "sign-flip": (
        claiming(lambda x: x.sin().cumsum(0), lambda g, x: -g.flip(0).cumsum(0).flip(0) * x.cos()),
        (drawn(2_100),),
        "",
    ),
}


@pytest.mark.parametrize("cause", WRONG)
def test_the_cause_is_named_and_where_it_was_looked_for(cause: str) -> None:
    function, inputs, words = WRONG[cause]
    result = checked(function, *inputs)
    assert result.verdict is Verdict.FAIL
    assert result.method in (Method.STRUCTURED, Method.PROBED)
    finding = result.findings[0]
    assert finding.cause == cause
    explanation = finding.message.splitlines()[-1]
    assert explanation.startswith(f"in {finding.wrt}[")
    assert words in explanation


def test_an_error_of_no_kind_gets_no_cause() -> None:
    def noisy(grad: Tensor, x: Tensor) -> Tensor:
        return grad * (x.cos() + 0.1 * torch.sin(1e4 * x * x))

    result = checked(claiming(torch.sin, noisy), drawn(5_000))
    assert (result.verdict, result.findings[0].cause) == (Verdict.FAIL, None)
