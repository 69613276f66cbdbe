"""What `--last-failed` knows: the cases that were not as expected when they last ran, as the last report has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradverify.case import Case
from gradverify.cli.files import LAST_REPORT, read_report
from gradverify.cli.select import among
from gradverify.cli.terminal import complain
from gradverify.report.words import counted
from gradverify.result import NotRun, Report
from gradverify.serial import ReportError


def failed_before(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Return the cases that were not as expected when they last ran; all of them where none is known."""
    try:
        report = read_report(LAST_REPORT)
    except ReportError as error:
        complain(f"--last-failed: {error}; running all")
        return cases
    ids = _failed(report)
    chosen = among(cases, ids)
    if not ids:
        which = "every case that the last run came to" if report.not_run else "every case of the last run"
        complain(f"--last-failed: {which} was as expected; running all")
    elif not chosen:
        complain(
            f"--last-failed: nothing that failed in the last run ({counted(len(ids), 'case')}) is here; running all"
        )
    return chosen or cases


def still_failing(not_run: Sequence[NotRun]) -> tuple[NotRun, ...]:
    """Return the cases that a run did not come to, with what the report before it knows about each."""
    if not not_run:
        return ()
    try:
        ids = _failed(read_report(LAST_REPORT))
    except ReportError:
        return tuple(not_run)
    return tuple(replace(case, failed=case.id in ids) for case in not_run)


def _failed(report: Report) -> frozenset[str]:
    unexpected = (case.id for case in report.cases if not case.as_expected)
    return frozenset((*unexpected, *(case.id for case in report.not_run if case.failed)))
