"""What an engine is asked to do, and what it says; no torch, so that any process can speak of it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gradverify.case import Case, Signature, Target, TargetProblem
from gradverify.result import CaseResult, CheckResult, Source
from gradverify.run.interrupts import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The question which devices there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The answer to a survey."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A target that is there."""

    signature: Signature
    source: Source | None  # where its backward is defined


Work = Case | Target | Survey
Answer = CaseResult | Loaded | TargetProblem | Devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work with its limits."""

    key: str  # unique among the tasks of an engine
    work: Work
    timeout: float  # seconds from its start
    memory: int | None = None  # bytes that it may take beyond what a worker has; None for no limit
    resource: str = ""  # tasks of one resource run one at a time; "" for as many as there are workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a worker is told to do."""

    work: Work
    timeout: float  # seconds, as in Task
    memory: int | None  # bytes, as in Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a worker says when it starts on a piece of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a worker says before the first check of a case and after each."""

    checks: tuple[CheckResult, ...]  # the results so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a worker says when it has finished a piece of work."""

    answer: Answer
    spent: bool  # its process is no longer as it was: it takes no more work


class Loss(StrEnum):
    """Why a task has no answer."""

    TIMEOUT = "timeout"
    CRASH = "crash"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    key: str
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLost:
    """A task that took its worker with it, or took too long."""

    key: str
    loss: Loss
    detail: str  # how the worker ended, as part of a sentence
    output: str  # the end of what it had printed
    place: str = ""  # where it was last, as `file.py:12 in backward`; "" where it could not say
    seconds: float  # from its start
    checks: tuple[CheckResult, ...] | None = None  # those of a case that had finished; None if none had begun


EngineEvent = TaskStarted | TaskDone | TaskLost


class Engine(Protocol):
    """Something that performs tasks, here or elsewhere."""

    def submit(self, task: Task) -> None:
        """Take a task; it starts when there is a worker for it."""

    def next_event(self, waiting: Waiting = nullcontext) -> EngineEvent | None:
        """Return the next event, None when no task is left; `waiting` is entered around every wait for it."""

    def cancel(self) -> None:
        """Drop every task that is not finished; no event follows for them."""

    def close(self) -> None:
        """End every worker at once; nothing can be submitted afterwards."""
