"""Measure a function beside its reference or, without one, its forward as plain code. No verdict depends on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from gradverify.core.model.problem import Problem
from gradverify.deadline import OutOfTime, is_late
from gradverify.errors import USER_ERRORS, InputError
from gradverify.run.describe_exception import describe
from gradverify.run.usage.memory import MemoryUse, memory_of
from gradverify.run.usage.sides import function_side, other_side
from gradverify.run.usage.times import Times, times_of
from gradverify.usage import ComparedWith, Measured, Usage

T = TypeVar("T")
_HIDDEN = "its forward hides operations from torch; name a `reference`"
_NOTHING = "there is nothing to differentiate"
_LATE = "the checks took more than half of the time limit"


def measure(problem: Problem) -> Measured:
    """Return the memory of one forward and backward of both; `missing` says why a number is missing.

    What user code raises is such a reason too. Past half of the time limit nothing is measured, so that a case that
    was verified in time does not run out of it.
    """
    compared_with = ComparedWith.PLAIN_TORCH if problem.reference is None else ComparedWith.REFERENCE
    if not problem.primals or is_late(problem.deadline):
        return Measured(compared_with=compared_with, missing=_LATE if problem.primals else _NOTHING)
    own = attempt(lambda: memory_of(function_side(problem)))
    if isinstance(own, str):
        return Measured(compared_with=compared_with, missing=own)
    other = attempt(lambda: memory_of(other_side(problem)))
    if problem.reference is None and isinstance(other, MemoryUse) and not _has_gradients_of(other, own):
        other = _HIDDEN
    if isinstance(other, str):
        return Measured(function=own.usage, compared_with=compared_with, missing=f"{compared_with.value}: {other}")
    return Measured(function=own.usage, other=other.usage, compared_with=compared_with)


def with_times(measured: Measured, problem: Problem) -> Measured:
    """Return the measured values with median times; unchanged if they cannot be taken, as where user code raises."""
    own, other = measured.function, measured.other
    if own is None:
        return measured
    sides = (function_side,) if other is None else (function_side, other_side)
    found = attempt(lambda: times_of([make(problem) for make in sides]))
    if isinstance(found, str):
        return measured
    return replace(measured, function=_timed(own, found[0]), other=None if other is None else _timed(other, found[-1]))


def _timed(usage: Usage, times: Times) -> Usage:
    return replace(usage, forward_seconds=times.forward, backward_seconds=times.backward)


def _has_gradients_of(plain: MemoryUse, own: MemoryUse) -> bool:
    """Return True if torch's own derivative has a gradient by every input by which the function has one."""
    return plain.without_gradient <= own.without_gradient


def attempt(run: Callable[[], T]) -> T | str:
    """Return the result, or why there is none. Warnings of user code have been given during the checks."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run()
    except (OutOfTime, InputError) as error:
        return str(error)
    except USER_ERRORS as error:
        return describe(error)
