"""A run's report on the screen: the listing, then what is not as expected, then the summary."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.report.case_brief import case_brief
from gradverify.report.case_detail import DetailOptions, case_detail, speaking
from gradverify.report.case_fix import as_expected_lines, case_fix
from gradverify.report.case_lines import case_lines
from gradverify.report.durations import duration_lines
from gradverify.report.lines import EMPTY, Line
from gradverify.report.repeated_errors import grouped, others_lines
from gradverify.report.repeated_skips import without_repeated_skips
from gradverify.report.screen import Detail, Screen
from gradverify.report.summary import (
    blunt_lines,
    explored_lines,
    known_lines,
    not_run_lines,
    skip_lines,
    summary_lines,
    uncovered_lines,
)
from gradverify.report.usage_text import asked_usage_lines
from gradverify.result import CaseResult, Report

NO_LISTING = (Detail.QUIET, Detail.BRIEF)  # no line for each case


def report_lines(report: Report, screen: Screen, options: DetailOptions, slowest: int = 0) -> list[Line]:
    """Return the whole report as lines, with a list of the `slowest` cases before the summary."""
    listing = case_lines(_listed(report, options.detail), screen) if options.detail not in NO_LISTING else []
    rest = lines_after_listing(report, screen, options, slowest)
    return [*listing, *([EMPTY] if listing else []), *rest]


def lines_after_listing(report: Report, screen: Screen, options: DetailOptions, slowest: int = 0) -> list[Line]:
    """Return what stands under the listing: what is not as expected, the `slowest` cases, usage, the summary."""
    rows: list[Line] = []
    for told in _told(report, screen, options):
        rows += [*([EMPTY] if rows else []), *told]
    if durations := duration_lines(report, slowest):
        rows += [*([EMPTY] if rows else []), *durations]
    if options.detail is Detail.BRIEF and (together := as_expected_lines(report.cases, screen)):
        rows += [*([EMPTY] if rows else []), *together]
    usage = asked_usage_lines(report.cases, screen.width) if options.detail is Detail.NORMAL else []
    rows += [*([EMPTY] if rows else []), *usage] if usage else []
    rows += [*([EMPTY] if rows else []), *skip_lines(report, screen, options.detail), *known_lines(report, screen)]
    rows += [*blunt_lines(report, screen), *uncovered_lines(report, screen, options.detail)]
    rows += [*explored_lines(report, screen, options.detail)]
    rows += [*not_run_lines(report, screen)]
    rows += [*summary_lines(report, screen)]
    return rows


def _told(report: Report, screen: Screen, options: DetailOptions) -> Iterator[list[Line]]:
    """Yield the lines of each case that is shown below the listing; one error of several cases is shown once."""
    cases = speaking(report.cases, options.detail)
    if options.detail is Detail.VERBOSE:
        yield from (case_detail(case, screen, options) for case in cases)
    else:
        one = case_fix if options.detail is Detail.BRIEF else case_brief
        yield from ([*one(first, screen), *others_lines(others, screen)] for first, *others in grouped(cases))


def _listed(report: Report, detail: Detail) -> tuple[CaseResult, ...]:
    return report.cases if detail is Detail.VERBOSE else tuple(without_repeated_skips(report.cases))
