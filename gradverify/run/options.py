"""The options, events and outcome of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gradverify.case import Exploring
from gradverify.errors import SpecError
from gradverify.result import CaseResult, Report


def unchanged(result: CaseResult) -> CaseResult:
    """Return a result unchanged."""
    return result


class EngineName(StrEnum):
    """Where cases are run."""

    LOCAL = "local"  # on this machine
    RAY = "ray"  # on the nodes of a Ray cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The engine that a run asks for."""

    name: EngineName = EngineName.LOCAL
    workers: int | None = None  # None: one per core; 0: in this process
    address: str | None = None  # of the cluster, as HOST:PORT or `auto`; None: the one that runs here, else a new one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run."""

    workers: int | None = None  # None: one per core; 0: in this process
    fail_fast: bool = False  # stop at the first case that is not as expected
    memory: int | None = None  # bytes that a case may take beyond an idle worker's; None for no limit
    seed: int | None = None  # in place of the seeds in specs
    require_devices: tuple[str, ...] = ()  # a case skipped because one of these is missing is not as expected
    no_drafts: bool = False  # a draft is not as expected
    keep_going: bool = False  # run the other files if one has mistakes
    exploring: Exploring | None = None  # change the inputs of every case too
    earlier: Mapping[str, float] = field(default_factory=dict)  # seconds that cases took before, by id
    judge: Callable[[CaseResult], CaseResult] = unchanged  # may change `as_expected` of each result (baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A case that started; once more if it was moved to another place."""

    case_id: str
    where: str = ""  # the node of a cluster; "" for this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class TryingInputs:
    """The checks of a case are finished, and other inputs are tried; again now and then while they are."""

    case_id: str
    tries: int  # so far
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    result: CaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something that the user should know, and that changes no result."""

    text: str


Event = Started | TryingInputs | Finished | Noted


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run."""

    report: Report  # the finished cases, in the order of the specs
    errors: tuple[SpecError, ...] = ()  # mistakes in specs found when the targets were loaded
    interrupted: bool = False
