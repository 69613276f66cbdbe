"""The specs as they are now, and the last result of every case."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradverify.case import Case
from gradverify.cli import engine
from gradverify.cli.gather import Gathered, paths_or_default
from gradverify.cli.request import Request
from gradverify.cli.select import matching
from gradverify.cli.shard import part_of
from gradverify.errors import SpecError
from gradverify.result import CaseResult, Report, summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What came of reading the specs."""

    gathered: Gathered
    errors: tuple[SpecError, ...]  # mistakes in specs; the files that have them are left out


@dataclass(slots=True, kw_only=True)
class State:
    """What is known between two runs. The fields change."""

    read: Read
    results: dict[str, CaseResult] = field(default_factory=dict)  # the last of each case, by id
    due: set[str] = field(default_factory=set)  # ids of the cases to run
    last: set[str] = field(default_factory=set)  # ids of the cases that ran last
    run_errors: tuple[SpecError, ...] = ()  # mistakes that the last run found when it loaded targets


def read_specs(paths: Sequence[Path] | None, expression: str | None, request: Request) -> Read:
    """Read and expand the specs. A mistake leaves its file out, and nothing is raised for it."""
    reading = engine.read(paths_or_default(paths))
    cases = engine.expand(reading.specs, request)
    selected = matching(cases, expression) if expression is not None else cases
    gathered = Gathered(
        specs=reading.specs,
        cases=part_of(selected, request.shard) if request.shard is not None else selected,
        problems=len(reading.errors),
        devices=tuple(dict.fromkeys(case.device for case in cases)),
        written=engine.written_cases(reading.specs),
    )
    return Read(gathered=gathered, errors=reading.errors)


def ids(cases: Sequence[Case]) -> set[str]:
    """Return the ids of cases."""
    return {case.id for case in cases}


def known_results(state: State) -> tuple[CaseResult, ...]:
    """Return the last result of every case that the specs still hold, in their order."""
    return tuple(state.results[case.id] for case in state.read.gathered.cases if case.id in state.results)


def whole_report(report: Report, state: State) -> Report:
    """Return the report of a run with the last results of all other cases."""
    cases = known_results(state)
    return replace(report, cases=cases, summary=summarize(cases, report.summary.seconds))


def unexpected_others(state: State, ran: Collection[str]) -> tuple[CaseResult, ...]:
    """Return the cases that did not run last and are not as expected."""
    return tuple(case for case in known_results(state) if not case.as_expected and case.id not in ran)
