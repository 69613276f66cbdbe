"""Time, calls and verdict of one check, ours and torch's, on a Function whose calls are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.gradcheck import GradcheckError

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.deadline import Deadline, OutOfTime, deadline_in, require_time
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult, Verdict
from tests.zoo.specimen import Specimen

LIMIT = 60.0  # seconds that one check may take
_ALONE = Settings(torch_gradcheck=TorchGradcheck.NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One check of one Function."""

    verdict: Verdict
    seconds: float
    forward: int  # calls
    backward: int
    result: CheckResult | None  # None for torch's checks


class CountedCalls:
    """A Function's `apply` that counts its calls and those of backward; past the deadline it raises OutOfTime."""

    def __init__(self, function: type[Function], deadline: Deadline, watch: Callable[[], None]) -> None:
        self.forward = self.backward = 0
        self._function, self._deadline, self._watch = function, deadline, watch

    def __call__(self, *arguments: Any) -> Tensor:
        require_time(self._deadline)
        self.forward += 1
        self._watch()
        output = self._function.apply(*arguments)
        if output.grad_fn is not None:
            output.grad_fn.register_prehook(self._count_backward)
        return output

    def _count_backward(self, cotangents: Any) -> None:
        self.backward += 1


def nothing() -> None:
    """Do nothing at a call of forward."""


def our_cost(check: str, function: type[Function], specimen: Specimen, watch: Callable[[], None] = nothing) -> Cost:
    """Return the cost of our check, causes included; `watch` is called before every forward."""
    deadline = deadline_in(LIMIT)
    counted = CountedCalls(function, deadline, watch)
    problem = bind(counted, specimen.inputs(0), names=specimen.names, name=specimen.name)
    begin = time.perf_counter()
    result = run_check(check, replace(problem, deadline=deadline), _ALONE, diagnose)
    return _cost(result.verdict, begin, counted, result)


def torch_cost(check: str, function: type[Function], specimen: Specimen) -> Cost:
    """Return the cost of torch's check of the same name, in its slow mode with its default tolerances."""
    counted = CountedCalls(function, deadline_in(LIMIT), nothing)
    inputs, verdict = specimen.inputs(0), Verdict.PASS
    begin = time.perf_counter()
    try:
        getattr(torch.autograd, check)(counted, inputs)
    except GradcheckError:
        verdict = Verdict.FAIL
    except OutOfTime:
        verdict = Verdict.INCONCLUSIVE
    except RuntimeError as error:
        verdict = Verdict.SKIP if "once_differentiable" in str(error) else Verdict.ERROR
    return _cost(verdict, begin, counted, None)


def _cost(verdict: Verdict, begin: float, counted: CountedCalls, result: CheckResult | None) -> Cost:
    return Cost(
        verdict=verdict,
        seconds=time.perf_counter() - begin,
        forward=counted.forward,
        backward=counted.backward,
        result=result,
    )
