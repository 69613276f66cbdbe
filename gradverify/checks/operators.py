"""GV708: what `torch.library.opcheck` finds in the custom operators that forward calls.

A custom operator makes promises that its gradient does not show: that it changes no argument which its schema does not
mark, that its fake implementation gives the shape of the real one, that autograd is registered at the right key.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.checks.failures import first_line
from gradverify.core.model.problem import Problem, call, fresh
from gradverify.errors import EvaluationError
from gradverify.interception import OperatorMode, intercepted_apply, is_hand_written
from gradverify.nested import map_tensors
from gradverify.result import Finding, Verdict

_OF_TORCH = {"aten", "prim", "prims", "c10d", "_c10d_functional", "profiler", "rngprims", "inductor", "higher_order"}
_PASSED = "SUCCESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCall:
    """One call of a custom operator."""

    operator: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opchecked:
    """What opcheck says of the custom operators that a forward calls."""

    passed: tuple[str, ...] = ()  # names of the operators that pass every test
    findings: tuple[Finding, ...] = ()  # one per operator and failing test


def opchecked(problem: Problem) -> Opchecked:
    """Return what opcheck says of each custom operator; nothing if forward cannot be watched, or opcheck raises.

    Takes one forward of the problem.
    """
    try:
        calls = operator_calls(problem)
    except EvaluationError:
        return Opchecked()
    answers = [(_name(made), _opcheck(made.operator, made.args, made.kwargs)) for made in calls]
    passed = [name for name, found in answers if found and set(map(str, found.values())) == {_PASSED}]
    findings = [finding for name, found in answers for finding in _findings(name, found)]
    return Opchecked(passed=tuple(passed), findings=tuple(findings))


def operator_calls(problem: Problem) -> tuple[OperatorCall, ...]:
    """Return the first call of each custom operator in a forward of the problem. Raises EvaluationError."""
    leaves = [fresh(primal.tensor).requires_grad_() for primal in problem.primals]
    recorder = _Recorder()
    with recorder, intercepted_apply(recorder.inside):
        call(problem, leaves)
    return tuple(recorder.calls.values())


class _Recorder(OperatorMode):
    """Keeps the first call of each custom operator.

    In the forward of a hand-written Function, autograd does not differentiate an operator, and need not be able to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[torch._ops.OpOverload, OperatorCall] = {}
        self.depth = 0  # of forwards of hand-written Functions

    def inside(
        self, original: Callable[[], Any], cls: type[Function], _args: tuple[Any, ...], _kwargs: dict[str, Any]
    ) -> Any:
        """Run a call of `apply`, and count it if the Function is hand-written."""
        deeper = int(is_hand_written(cls))
        self.depth += deeper
        try:
            return original()
        finally:
            self.depth -= deeper

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if isinstance(func, torch._ops.OpOverload) and func.namespace not in _OF_TORCH and func not in self.calls:
            copies, kept = map_tensors((args, given), self._copied)
            self.calls[func] = OperatorCall(operator=func, args=copies, kwargs=kept)
        return func(*args, **given)

    def _copied(self, value: Tensor) -> Tensor:
        return fresh(value).requires_grad_(value.requires_grad and not self.depth)


def _name(made: OperatorCall) -> str:
    return str(made.operator).removesuffix(".default").replace(".", "::", 1)


def _findings(name: str, answer: Mapping[str, Any]) -> Iterator[Finding]:
    for test, found in answer.items():
        if found != _PASSED:
            text = first_line(found) if isinstance(found, BaseException) else str(found)
            message = f"torch.library.opcheck({name}) fails {test}: {text}"
            yield Finding(code="GV708", verdict=Verdict.FAIL, message=message)


def _opcheck(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer of opcheck by test; it is empty if opcheck itself raises."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        found: Mapping[str, Any] = torch.library.opcheck(operator, tuple(args), dict(kwargs), raise_exception=False)
        return found
    return {}
