"""The tasks and events of an engine, and the messages of its workers. Imports no torch."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from gradverify import case, result, usage
from gradverify.case import Case, Signature, Target, TargetProblem, Trying
from gradverify.result import CaseResult, CheckResult, Source
from gradverify.run.framing import rebuilt
from gradverify.run.interrupts import Waiting
from gradverify.run.quick_pickle import pickle_quickly


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceQuery:
    """A request for the devices of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The answer to a DeviceQuery."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A target that was loaded."""

    signature: Signature
    source: Source | None  # where its backward is defined


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A function of gradverify's own to call in a worker, because it needs torch or runs user code."""

    function: str  # package.module:name; it takes one argument, and its result holds plain values and gradverify's own
    argument: Any  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResult:
    """The result of a FunctionCall."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWork:
    """Work as it travels to another machine, unpacked by the worker that does it."""

    frame: bytes  # the Work, pickled, with the paths of the machine that the command runs on
    here: str = ""  # the project's folder on that machine; set where the work arrives
    there: str = ""  # the project's folder where the work is done; set there


Environment = tuple[tuple[str, str], ...]  # environment variables that modules read when they are imported
INTERPRETED: Environment = (("TRITON_INTERPRET", "1"),)
Work = Case | Target | DeviceQuery | FunctionCall
Answer = CaseResult | Loaded | TargetProblem | Devices | FunctionResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work with its limits."""

    key: str  # unique among the tasks of an engine
    work: Work | PackedWork
    timeout: float  # seconds from its start
    memory: int | None = None  # bytes beyond those of an idle worker; None for no limit
    resource: str = ""  # tasks of one resource run one at a time, those of "" in parallel
    device: str = "cpu"  # the device that the work needs: an engine of several machines places it by this
    environment: Environment = ()  # a worker runs tasks of one environment only


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Message to a worker: the work to do."""

    work: Work | PackedWork
    timeout: float  # seconds, as in Task
    memory: int | None  # bytes, as in Task
    environment: Environment  # as in Task


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStarted:
    """Message of a worker when it starts its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a case has come: noted before its first check and after each, sent before each try with other inputs."""

    checks: tuple[CheckResult, ...]  # the results so far
    trying: Trying | None = None  # the try that begins; the time limit starts again with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Message of a worker when it has finished its work."""

    answer: bytes  # an Answer, pickled
    spent: bool  # the work changed its process: it ends and takes no more work


class Loss(StrEnum):
    """Why a task has no answer."""

    TIMEOUT = "timeout"
    CRASH = "crash"
    INTERRUPT = "interrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    """A task that started; once more if it was moved to another place."""

    key: str
    where: str = ""  # the node of a cluster; "" for this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    key: str
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAnswered:
    """A TaskDone as processes pass it on: only the last one unpacks it."""

    key: str
    answer: bytes  # an Answer, pickled


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLost:
    """A task that was interrupted, or whose worker crashed or ran out of time."""

    key: str
    loss: Loss
    detail: str = ""  # how the worker ended, as the predicate of a sentence
    output: str = ""  # the last lines of its output
    place: str = ""  # innermost line of user code, `file.py:12 in backward`; "" if unknown
    seconds: float = 0.0  # since its start
    checks: tuple[CheckResult, ...] | None = None  # finished checks of a case; None before its first
    trying: Trying | None = None  # the try that was going on


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTrying:
    """The checks of a case are finished, and its worker tries other inputs; again now and then while it does."""

    key: str
    tries: int  # so far
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNote:
    """Something that the user should know, and that changes no result: a node that died."""

    text: str


EngineEvent = TaskStarted | TaskTrying | TaskDone | TaskLost | EngineNote


def unpacked(event: EngineEvent | TaskAnswered) -> EngineEvent:
    """Return the event, an answer unpacked; a task without one is lost, since user code can write to any socket."""
    if not isinstance(event, TaskAnswered):
        return event
    try:
        answer = rebuilt(event.answer)
        if not isinstance(answer, Answer):
            raise TypeError(answer)
        return TaskDone(key=event.key, answer=answer)
    except Exception:  # unpickling arbitrary bytes may raise anything
        return TaskLost(key=event.key, loss=Loss.CRASH, detail="sent an answer that is not one of gradverify's")


class Engine(Protocol):
    """Runs tasks, in this process or in others."""

    @property
    def name(self) -> str:
        """What reports call the engine, as `--engine` does."""

    def submit(self, task: Task) -> None:
        """Queue a task; it starts when a worker is idle."""

    def next_event(self, waiting: Waiting = nullcontext) -> EngineEvent | None:
        """Return the next event, None when no task is left. Every wait happens inside a `waiting` context."""

    def cancel(self) -> tuple[TaskLost, ...]:
        """Drop every unfinished task; no event follows for them. Return those that were trying other inputs."""

    def renew(self) -> None:
        """Let later tasks run in new workers, which import the modules of the user anew."""

    def prepare(self) -> None:
        """Make later new workers faster, at the cost of some work now: to be called before a wait for the user."""

    def close(self) -> None:
        """Kill every worker. Nothing can be submitted afterwards."""


pickle_quickly(case, result, usage, sys.modules[__name__])
