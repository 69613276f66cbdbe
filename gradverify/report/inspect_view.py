"""The wrong elements of a saved run, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gradverify.report.case_detail import DetailOptions, finding_lines
from gradverify.report.heatmap import heatmap
from gradverify.report.lines import EMPTY, HEAD, Line, indented, line, span
from gradverify.report.reproduce import command_lines, reproduce_command
from gradverify.report.safe import safe
from gradverify.report.screen import Screen, narrowed
from gradverify.report.words import badge_of, badge_span, heading
from gradverify.result import CaseResult, CheckResult

_INDENT = 2


class Picture(StrEnum):
    """How the elements are drawn."""

    TABLE = "table"
    HEATMAP = "heatmap"  # a picture too, under the table


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """What is shown of each finding."""

    worst: int | None = 20  # elements, None for all that were saved
    picture: Picture = Picture.TABLE


def with_elements(cases: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the cases that have elements to look at."""
    return [case for case in cases if any(finding.elements for check in case.checks for finding in check.findings)]


def inspect_lines(cases: Sequence[CaseResult], screen: Screen, options: InspectOptions) -> list[Line]:
    """Return every case's elements; no blank line at either end."""
    rows: list[Line] = []
    for case in cases:
        rows += [EMPTY, EMPTY] if rows else []
        rows += _case(case, screen, options)
    return rows


def _case(case: CaseResult, screen: Screen, options: InspectOptions) -> list[Line]:
    rows = [heading(case, safe(case.id), screen)]
    shown = [check for check in case.checks if check.findings]
    if not shown:
        rows.append(line("  no finding: there are no elements to look at"))
    for check in shown:
        rows += [EMPTY, *indented(_check(case, check, screen, options), _INDENT)]
    command = reproduce_command(case)
    if not command:
        return rows
    return [*rows, EMPTY, *indented(command_lines("reproduce:", command, screen.width - _INDENT), _INDENT)]


def _check(case: CaseResult, check: CheckResult, screen: Screen, options: InspectOptions) -> list[Line]:
    rows = [line(span(f"{check.check}: ", HEAD), badge_span(badge_of(check.verdict, screen.glyphs)))]
    inner = narrowed(screen, 2 * _INDENT)
    for finding in check.findings:
        rows += indented(finding_lines(case, finding, inner, DetailOptions(rows=options.worst)), _INDENT)
        if options.picture is Picture.HEATMAP and finding.elements:
            rows += indented([EMPTY, *heatmap(finding, inner), EMPTY], _INDENT)
    return rows
