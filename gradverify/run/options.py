"""How a run goes about its cases, what it says meanwhile, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradverify.errors import SpecError
from gradverify.result import CaseResult, Report


def as_it_is(result: CaseResult) -> CaseResult:
    """Return a result unchanged."""
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line says about running."""

    workers: int | None = None  # None: one per core; 0: in this process
    fail_fast: bool = False  # stop at the first case that is not as expected
    memory: int | None = None  # bytes that a case may take beyond what a worker has; None for no limit
    seed: int | None = None  # instead of the specs' own
    require_devices: tuple[str, ...] = ()  # a skip for want of one of these is not as expected
    keep_going: bool = False  # run the other files where one has mistakes
    judge: Callable[[CaseResult], CaseResult] = as_it_is  # says of each result whether it is as expected after all


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    case_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    result: CaseResult


Event = Started | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run."""

    report: Report  # the cases that were finished, in the order of the specs
    errors: tuple[SpecError, ...] = ()  # mistakes that showed when the targets were loaded
    interrupted: bool = False
