"""The file behind `--last-failed`: the cases that were not as expected when they last ran, in any earlier run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.case import Case
from gradverify.cli.files import read_as
from gradverify.cli.gather import Gathered
from gradverify.cli.select import with_ids
from gradverify.cli.terminal import complain
from gradverify.report.words import counted
from gradverify.result import CaseResult, NotRun, Report, Verdict
from gradverify.serial import ReportError, from_plain, to_plain

LAST_FAILURES = Path(".gradverify/failed.json")
EXPLORED = "explore"  # stands among the checks for what was found at other inputs
_QUIET = (Verdict.PASS, Verdict.SKIP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that was not as expected when it last ran."""

    id: str
    spec: str  # path as given, relative to the working directory
    checks: tuple[str, ...]  # checks that did not pass, and EXPLORED; none if the case could not be run


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The content of the file."""

    cases: tuple[Failure, ...]


def failed_before(cases: tuple[Case, ...], *, explore: bool) -> tuple[Case, ...]:
    """Return the cases that were not as expected when they last ran, all cases if there are none.

    Says so if some of them failed when their inputs were changed, and `explore` is False.
    """
    try:
        known = read_as(LAST_FAILURES, _parsed)
    except ReportError as error:
        complain(f"--last-failed: {error}; running all")
        return cases
    chosen = with_ids(cases, {failure.id for failure in known})
    if not known:
        complain("--last-failed: no earlier run left a failure; running all")
    elif not chosen:
        count = counted(len(known), "case")
        complain(f"--last-failed: nothing that failed in earlier runs ({count}) is here; running all")
    ids = {case.id for case in chosen}
    explored = sum(failure.id in ids and EXPLORED in failure.checks for failure in known)
    if explored and not explore:
        complain(f"--last-failed: {counted(explored, 'case')} failed at other inputs; --explore tries them again")
    return chosen or cases


def still_failing(not_run: Sequence[NotRun]) -> tuple[NotRun, ...]:
    """Return the cases that were not run, each marked as failed if it failed in an earlier run."""
    ids = {failure.id for failure in _failures_in_file()} if not_run else ()
    return tuple(replace(case, failed=case.id in ids) for case in not_run)


def failures_after(report: Report, gathered: Gathered, narrowed: Sequence[str]) -> str:
    """Return the text of the file after a run. `narrowed` are the checks given by `--check`; () if all were run.

    A failure stays until a run of its case and its checks is as expected, or until the case no longer exists.
    """
    before = {failure.id: failure for failure in _failures_in_file()}
    now = {case.id: _failure_after(case, before.get(case.id), narrowed) for case in report.cases}
    kept = {name: failure for name, failure in before.items() if name not in now and not _is_gone(failure, gathered)}
    found = {name: failure for name, failure in now.items() if failure is not None}
    rows = ",\n".join(json.dumps(to_plain(failure)) for _, failure in sorted((kept | found).items()))
    return f'{{"cases": [\n{rows}\n]}}\n'


def _failures_in_file() -> tuple[Failure, ...]:
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


def _failure_after(case: CaseResult, before: Failure | None, narrowed: Sequence[str]) -> Failure | None:
    """Return the failure of a case after a run, None if none of its checks fails."""
    ran = {check.check for check in case.checks}
    not_run = [name for name in before.checks if name not in ran and name != EXPLORED] if before and narrowed else []
    not_run += [EXPLORED] if before and EXPLORED in before.checks and case.explored is None else []
    if case.as_expected and not not_run:
        return None
    failed_now = [] if case.as_expected else _failed_checks(case)
    return Failure(id=case.id, spec=case.spec, checks=tuple(dict.fromkeys([*not_run, *failed_now])))


def _failed_checks(case: CaseResult) -> list[str]:
    """Return the checks that did not pass, EXPLORED among them, or all if the case passed although it should not."""
    surprising = [check.check for check in case.checks if check.verdict not in _QUIET]
    surprising += [EXPLORED] if case.explored is not None and not case.explored else []
    return surprising or [check.check for check in case.checks]


def _is_gone(failure: Failure, gathered: Gathered) -> bool:
    """True if the case is no longer in its spec, or the spec no longer exists."""
    path = os.path.abspath(failure.spec)  # noqa: PTH100 (links are kept)
    if path in gathered.written:
        return failure.id.rpartition("/")[0] not in gathered.written[path]
    return not os.path.lexists(path)
