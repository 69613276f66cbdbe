"""Helpers that run gradcheck on a wrong backward and return the diagnoses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import Finding, Verdict
from tests.core.support import ALONE

Backward = Callable[..., Any]  # (*cotangents, *inputs) -> gradient of every input


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Return a tensor of standard normal values that requires grad."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def diagnoses_of(forward: Callable[..., Any], backward: Backward, *inputs: Any) -> dict[str, tuple[str | None, str]]:
    """Return {"output by input": (cause, explanation)} of every wrong block."""

    class Planted(Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            ctx.given = given
            return forward(*given)

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor) -> Any:
            return backward(*cotangents, *ctx.given)

    problem = bind(Planted.apply, inputs, names=tuple("xyzw"[: len(inputs)]))
    result = run_check("gradcheck", problem, ALONE, diagnose)
    return {
        f"{finding.of} by {finding.wrt}": _diagnosis(finding) for finding in result.findings if _is_failure(finding)
    }


def diagnosis_of(forward: Callable[..., Any], backward: Backward, *inputs: Any) -> tuple[str | None, str]:
    """Return (cause, explanation) of the only wrong block."""
    ((diagnosis),) = diagnoses_of(forward, backward, *inputs).values()
    return diagnosis


def jacobian(wrong: Tensor) -> Backward:
    """Return a backward of one input with Jacobian `wrong`, (m, n)."""
    return lambda g, x: (g.reshape(-1) @ wrong).reshape(x.shape)


def _is_failure(finding: Finding) -> bool:
    return finding.verdict is Verdict.FAIL


def _diagnosis(finding: Finding) -> tuple[str | None, str]:
    return finding.cause, finding.message.partition("\n")[2]
