"""The wrong elements of a saved run, worst first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gradverify.problem import own_message
from gradverify.report import numbers
from gradverify.report.case_detail import DetailOptions, alike, finding_lines, names_of, origin_lines
from gradverify.report.checks_text import second_opinion
from gradverify.report.explored_text import discovery_lines, remark_lines
from gradverify.report.heatmap import heatmap
from gradverify.report.lines import EMPTY, HEAD, Line, indented, line, span
from gradverify.report.reproduce import command_lines, reproduce_command
from gradverify.report.safe import fold, safe
from gradverify.report.screen import Screen, narrowed
from gradverify.report.usage_text import usage_lines
from gradverify.report.words import badge_of, badge_span, heading
from gradverify.result import WORST_FIRST, CaseResult, CheckResult, Discovery, Element

_INDENT = 2
_INPUT = 20  # lines of one input of a discovery


class Picture(StrEnum):
    """How the elements are drawn."""

    TABLE = "table"
    HEATMAP = "heatmap"  # a picture too, under the table


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """What is shown of each finding."""

    worst: int | None = 20  # elements, None for all that were saved
    picture: Picture = Picture.TABLE
    reasons: bool = False  # why each element has its verdict


def with_something(cases: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the cases that there is something to see of, worst first: elements, or why a case is not as expected."""
    shown = [case for case in cases if not case.as_expected or _elements(case) or _discoveries(case)]
    return sorted(shown, key=_badness)


def inspect_lines(cases: Sequence[CaseResult], screen: Screen, options: InspectOptions) -> list[Line]:
    """Return what there is to see of every case; no blank line at either end."""
    rows: list[Line] = []
    for case in cases:
        rows += [EMPTY, EMPTY] if rows else []
        rows += _case(case, screen, options)
    return rows


def _discoveries(case: CaseResult) -> tuple[Discovery, ...]:
    return case.explored.discoveries if case.explored is not None else ()


def _elements(case: CaseResult) -> list[Element]:
    checks = [*case.checks, *(check for found in _discoveries(case) for check in found.checks)]
    return [element for check in checks for finding in check.findings for element in finding.elements]


def _badness(case: CaseResult) -> tuple[bool, int, float]:
    """Sort key: what is not as expected, then the worst verdict, then the worst excess."""
    excess = (numbers.ratio(element.error, element.allowed) for element in _elements(case))
    worst = max((math.inf if math.isnan(ratio) else ratio for ratio in excess), default=0.0)
    return case.as_expected, WORST_FIRST.index(case.verdict), -worst


def _case(case: CaseResult, screen: Screen, options: InspectOptions) -> list[Line]:
    width = screen.width - _INDENT
    rows = [heading(case, safe(case.id), screen), *indented(origin_lines(case, width), _INDENT)]
    message = own_message(case)
    rows += [line(" " * _INDENT, row) for row in (fold(message, width) if message else ())]
    shown = [check for check in case.checks if check.findings]
    if not shown and not case.message and not _discoveries(case):
        rows.append(line("  no finding: there are no elements to look at"))
    for group in alike(shown):
        rows += [EMPTY, *indented(_check(case, group, screen, options), _INDENT)]
    for part in _explored(case, narrowed(screen, _INDENT), options):
        rows += [EMPTY, *indented(part, _INDENT)]
    usage = usage_lines(case, width)
    rows += [EMPTY, *indented(usage, _INDENT)] if usage else []
    command = reproduce_command(case)
    if not command:
        return rows
    return [*rows, EMPTY, *indented(command_lines("reproduce:", command, width), _INDENT)]


def _explored(case: CaseResult, screen: Screen, options: InspectOptions) -> list[list[Line]]:
    """Return each discovery at other inputs with its elements, then what there is to remark."""
    if case.explored is None:
        return []

    def checks(check: CheckResult, inner: Screen) -> list[Line]:
        return _check(case, [check], narrowed(inner, -_INDENT), options)

    parts = [
        discovery_lines(case, found, screen, _INPUT, checks) for found in case.explored.discoveries if found.checks
    ]
    rest = remark_lines(case.explored, screen.width)
    return [*parts, *([rest] if rest else [])]


def _check(case: CaseResult, group: Sequence[CheckResult], screen: Screen, options: InspectOptions) -> list[Line]:
    check = group[0]
    rows = [line(span(f"{names_of(group)}: ", HEAD), badge_span(badge_of(check.verdict, screen.glyphs)))]
    inner = narrowed(screen, 2 * _INDENT)
    pictured = False
    for finding in check.findings:
        rows += [EMPTY] if pictured else []
        pictured = options.picture is Picture.HEATMAP and bool(finding.elements)
        detail = DetailOptions(rows=options.worst, reasons=options.reasons)
        rows += indented(finding_lines(case, finding, inner, detail), _INDENT)
        if pictured:
            rows += indented([EMPTY, *heatmap(finding, inner)], _INDENT)
    opinion = second_opinion(check)
    return rows + indented(map(line, fold(opinion, inner.width) if opinion else ()), _INDENT)
