"""torch's own gradcheck and gradgradcheck, run beside ours and reported in torch's words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.failures import first_line
from gradverify.core.model.coordinates import coordinates_in
from gradverify.core.model.problem import Meter, Problem, call, fresh
from gradverify.core.model.tape import Tape, call_on_leaves
from gradverify.deadline import OutOfTime
from gradverify.errors import USER_ERRORS, EvaluationError
from gradverify.result import TorchOutcome, Verdict

SMALL = 10_000  # entries of the largest Jacobian that `torch_gradcheck: small` runs torch on
_DOUBLE = {torch.float64, torch.complex128}


def run_gradcheck(problem: Problem, settings: Settings, tape: Tape) -> TorchOutcome:
    """Run `torch.autograd.gradcheck` in its slow mode at its own defaults."""
    return _run("gradcheck", torch.autograd.gradcheck, problem, settings, tape)


def run_gradgradcheck(problem: Problem, settings: Settings, tape: Tape) -> TorchOutcome:
    """Run `torch.autograd.gradgradcheck` in its slow mode at its own defaults."""
    return _run("gradgradcheck", torch.autograd.gradgradcheck, problem, settings, tape)


def _run(name: str, check: Callable[..., bool], problem: Problem, settings: Settings, tape: Tape) -> TorchOutcome:
    reason = _reason_to_skip(problem, settings, tape)
    if reason:
        return TorchOutcome(name=name, verdict=Verdict.SKIP, message=reason)
    problem = replace(problem, meter=Meter())  # its evaluations are not ours
    inputs = tuple(fresh(primal.tensor).requires_grad_() for primal in problem.primals)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():
            outputs = call_on_leaves(problem, tensors, copied=tape.copied)
        else:
            outputs = call(problem, [fresh(tensor) for tensor in tensors])
        return tuple(output.tensor for output in outputs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _outcome(name, check, function, inputs)


def _outcome(name: str, check: Callable[..., bool], function: Any, inputs: tuple[Tensor, ...]) -> TorchOutcome:
    try:
        with torch.enable_grad():
            check(function, inputs)
    except GradcheckError as error:
        return TorchOutcome(name=name, verdict=Verdict.FAIL, message=first_line(error))
    except OutOfTime as error:
        return TorchOutcome(name=name, verdict=Verdict.SKIP, message=str(error))
    except USER_ERRORS as error:
        original = error.original if isinstance(error, EvaluationError) else error
        kind, description = type(original).__name__, first_line(original)
        return TorchOutcome(
            name=name, verdict=Verdict.ERROR, message=kind if description == kind else f"{kind}: {description}"
        )
    return TorchOutcome(name=name, verdict=Verdict.PASS)


def _reason_to_skip(problem: Problem, settings: Settings, tape: Tape) -> str:
    if settings.torch_gradcheck is TorchGradcheck.NEVER:
        return "torch_gradcheck is never"
    if problem.accumulates:
        return "torch's check needs torch.autograd.grad, under which this backward raises"
    dtypes = {primal.tensor.dtype for primal in problem.primals}
    if not dtypes <= _DOUBLE:
        found = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes - _DOUBLE))
        return f"torch's check needs float64 or complex128, found {found}"
    inputs = sum(coordinates_in(primal.tensor) for primal in problem.primals)
    entries = inputs * sum(coordinates_in(output.tensor) for output in tape.outputs)
    if not entries:
        return "the Jacobian has no entries"
    if settings.torch_gradcheck is TorchGradcheck.SMALL and entries > SMALL:
        return f"the Jacobian has {entries:,} entries, more than {SMALL:,}; --torch-gradcheck always runs it"
    return ""
