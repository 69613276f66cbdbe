"""Compare a backward with the derivative of a surrogate, the smooth function whose derivative it is meant to be.

gradcheck takes differences of the surrogate. gradgradcheck compares the derivative of backward with differences of
backward; at kinks of the surrogate, backward may jump.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.case import Case, Settings, TorchGradcheck
from gradverify.checks import gradcheck
from gradverify.checks.failures import failed_call
from gradverify.checks.reference.error_model import precision_of
from gradverify.checks.reference.evaluate import with_wide_inputs
from gradverify.checks.reference.own_gradient import wrong_gradient
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import Problem, fresh
from gradverify.core.model.tape import record
from gradverify.errors import USER_ERRORS, EvaluationError, InputError, SurrogateError
from gradverify.evidence import Diagnose
from gradverify.nested import named_tensors
from gradverify.result import CheckResult, Finding, Verdict
from gradverify.run.build import build
from gradverify.run.load import load

_UNCLEAR = "it does not say which gradient is meant; leave out what it detaches and the rounding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """A problem whose forward is the surrogate and whose backward is the function's."""

    written: str  # as the spec names it
    problem: Problem
    plain: Problem  # the surrogate alone, with its own backward


def surrogate_of(case: Case, problem: Problem) -> Surrogate | None:
    """Return the surrogate of a case's problem, None if the spec names none. Raises the exceptions of `build`."""
    if case.surrogate is None:
        return None
    described = replace(case, target=case.surrogate, init=None, outputs=None, surrogate=None)
    other = build(described, load(case.surrogate))
    finer = None
    if problem.finer is not None:
        finer = _combined(problem, problem.finer, other, other.finer or other.function, case.surrogate.written)
    function = _combined(problem, problem.function, other, other.function, case.surrogate.written)
    return Surrogate(
        written=case.surrogate.written,
        problem=replace(problem, function=function, finer=finer, output=""),
        plain=other,
    )


def gradcheck_against(surrogate: Surrogate, settings: Settings, diagnose: Diagnose) -> CheckResult:
    """Return gradcheck's result, with the surrogate's name in its message and in every finding with elements.

    If backward differs from a surrogate whose own gradient is not its derivative, as with a detached part, that is the
    only finding. torch's own gradcheck is not run.
    """
    against = f"held against the derivative of {surrogate.written}"
    settings = replace(settings, torch_gradcheck=TorchGradcheck.NEVER)
    result = run_check(gradcheck.NAME, surrogate.problem, settings, diagnose)
    compared = result.method is not None and result.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)
    if compared and (why := _wrong_gradient(surrogate, settings.seed)):
        text = f"{surrogate.written} has a gradient that is not its derivative, so that {_UNCLEAR}: {why}"
        return failed_call(gradcheck.NAME, surrogate.problem, EvaluationError("surrogate", SurrogateError(text)))
    torch_result = result.torch
    if torch_result is not None:
        torch_result = replace(
            torch_result, message="torch's check knows no surrogate: it would hold backward against forward"
        )
    return replace(
        result,
        message=f"{result.message}; {against}" if result.method is not None else result.message,
        findings=tuple(_with_prefix(finding, against) for finding in result.findings),
        torch=torch_result,
    )


def _wrong_gradient(surrogate: Surrogate, seed: int) -> str:
    """Return what is wrong with the gradient that torch gives the surrogate, "" if it is right or torch gives none."""
    plain = with_wide_inputs(surrogate.plain)
    try:
        if not any(output.tensor.requires_grad for output in record(plain).outputs):
            return ""
        precision = precision_of([primal.tensor.dtype for primal in surrogate.problem.primals])
        return wrong_gradient(surrogate.problem, plain, precision, seed)
    except EvaluationError:
        return ""


def _with_prefix(finding: Finding, against: str) -> Finding:
    return replace(finding, message=f"{against}: {finding.message}") if finding.elements else finding


class _WithValue(torch.autograd.Function):
    """Returns the surrogate's value forward, and passes the cotangent to the function's output backward."""

    @staticmethod
    def forward(_ctx: Any, _output: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def _combined(
    problem: Problem, own: Callable[..., Any], other: Problem, surrogate: Callable[..., Any], written: str
) -> Callable[..., dict[str, Tensor]]:
    """Return a function with the surrogate's values and, if a gradient is needed, the backward of `own`."""
    order = _order(problem, other, written)

    def values(tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
        given = [fresh(tensor) for tensor in tensors]
        try:
            with torch.no_grad():
                return _by_name(surrogate(*(given[place] for place in order)))
        except USER_ERRORS as error:
            raise EvaluationError("surrogate", error) from error

    def function(*tensors: Tensor) -> dict[str, Tensor]:
        found = values(tensors)  # first, so that its random numbers do not depend on whether `own` is called
        if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
            return found
        outputs = _by_name(own(*tensors))
        _require_alike(outputs, found, written)
        return {name: _with_value(output, found[name]) for name, output in outputs.items()}

    return function


def _order(problem: Problem, other: Problem, written: str) -> list[int]:
    """Return, for each differentiated input of the surrogate, its position among those of the function."""
    names = [primal.name for primal in problem.primals]
    others = [primal.name for primal in other.primals]
    if sorted(names) != sorted(others):
        raise InputError(f"{written} is differentiated by {', '.join(others)}, forward by {', '.join(names)}")
    return [names.index(name) for name in others]


def _by_name(raw: Any) -> dict[str, Tensor]:
    return {named.name: named.tensor for named in named_tensors("output", raw)}


def _with_value(output: Tensor, value: Tensor) -> Tensor:
    held: Tensor = _WithValue.apply(output, value) if output.requires_grad else value  # type: ignore[no-untyped-call]
    return held


def _require_alike(outputs: Mapping[str, Tensor], found: Mapping[str, Tensor], written: str) -> None:
    """Raise EvaluationError if names, dtypes or shapes of the surrogate's outputs differ from forward's."""
    one, other = _described(outputs), _described(found)
    if one != other:
        text = f"{written} returns {other}, forward {one}; a surrogate returns what forward does"
        raise EvaluationError("surrogate", SurrogateError(text))


def _described(outputs: Mapping[str, Tensor]) -> str:
    parts = [
        f"{name} {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for name, tensor in outputs.items()
    ]
    return ", ".join(parts) or "no tensor"
