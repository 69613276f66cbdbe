"""What `--last-failed` knows: the cases that were not as expected when they last ran, whichever run that was."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.case import Case
from gradverify.cli.files import read_as
from gradverify.cli.gather import Gathered
from gradverify.cli.select import among
from gradverify.cli.terminal import complain
from gradverify.report.words import counted
from gradverify.result import CaseResult, NotRun, Report, Verdict
from gradverify.serial import ReportError, from_plain, to_plain

LAST_FAILURES = Path(".gradverify/failed.json")
_QUIET = (Verdict.PASS, Verdict.SKIP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that was not as expected when it last ran."""

    id: str
    spec: str  # path as it was given, relative to the working directory
    checks: tuple[str, ...]  # those that did not pass; none if the case could not be run at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What the file holds."""

    cases: tuple[Failure, ...]


def failed_before(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Return the cases that were not as expected when they last ran; all of them where none is known."""
    try:
        known = read_as(LAST_FAILURES, _parsed)
    except ReportError as error:
        complain(f"--last-failed: {error}; running all")
        return cases
    chosen = among(cases, {failure.id for failure in known})
    if not known:
        complain("--last-failed: no earlier run left a failure; running all")
    elif not chosen:
        count = counted(len(known), "case")
        complain(f"--last-failed: nothing that failed in earlier runs ({count}) is here; running all")
    return chosen or cases


def still_failing(not_run: Sequence[NotRun]) -> tuple[NotRun, ...]:
    """Return the cases that a run did not come to, with what earlier runs know about each."""
    ids = {failure.id for failure in _known()} if not_run else ()
    return tuple(replace(case, failed=case.id in ids) for case in not_run)


def failures_after(report: Report, gathered: Gathered, narrowed: Sequence[str]) -> str:
    """Return the file's text after a run whose `--check` asked for the checks in `narrowed`; () if it asked for all.

    A failure stays until its case is as expected in a run that comes to it and to its checks, or does not exist any
    more.
    """
    before = {failure.id: failure for failure in _known()}
    now = {case.id: _left(case, before.get(case.id), narrowed) for case in report.cases}
    kept = {name: failure for name, failure in before.items() if name not in now and not _is_gone(failure, gathered)}
    found = {name: failure for name, failure in now.items() if failure is not None}
    rows = ",\n".join(json.dumps(to_plain(failure)) for _, failure in sorted((kept | found).items()))
    return f'{{"cases": [\n{rows}\n]}}\n'


def _known() -> tuple[Failure, ...]:
    """Return the failures in the file; none if it cannot be read."""
    try:
        return read_as(LAST_FAILURES, _parsed)
    except ReportError:
        return ()


def _parsed(text: str) -> tuple[Failure, ...]:
    try:
        return from_plain(Failures, json.loads(text)).cases
    except (ValueError, RecursionError) as error:
        raise ReportError(f"not JSON: {error}") from error


def _left(case: CaseResult, before: Failure | None, narrowed: Sequence[str]) -> Failure | None:
    """Return what is known to fail of a case that was run, None if nothing is."""
    ran = {check.check for check in case.checks}
    unanswered = [name for name in before.checks if name not in ran] if before and narrowed else []
    if case.as_expected and not unanswered:
        return None
    own = [] if case.as_expected else _failing(case)
    return Failure(id=case.id, spec=case.spec, checks=tuple(dict.fromkeys([*unanswered, *own])))


def _failing(case: CaseResult) -> list[str]:
    """Return the checks that did not pass, all of them if the case passed and should not have."""
    surprising = [check.check for check in case.checks if check.verdict not in _QUIET]
    return surprising or [check.check for check in case.checks]


def _is_gone(failure: Failure, gathered: Gathered) -> bool:
    """Return whether a case is no longer in its spec, or its spec is no longer there."""
    path = os.path.abspath(failure.spec)  # noqa: PTH100 (links are kept)
    if path in gathered.written:
        return failure.id.rpartition("/")[0] not in gathered.written[path]
    return not os.path.lexists(path)
