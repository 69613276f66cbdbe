"""The cases that took longest."""

from __future__ import annotations

import math

from gradverify.report.case_lines import time_text
from gradverify.report.lines import DIM, HEAD, Line, line, pad_left, span
from gradverify.report.numbers import added_up
from gradverify.report.safe import safe
from gradverify.report.words import counted
from gradverify.result import CaseResult, Report


def duration_lines(report: Report, most: int) -> list[Line]:
    """Return the `most` slowest cases, slowest first, and what part of the time of all cases they took."""
    slowest = sorted(report.cases, key=_seconds, reverse=True)[:most]
    if not slowest:
        return []
    total, part = (added_up(map(_seconds, cases)) for cases in (report.cases, slowest))
    told = len(slowest) > 1 and 0 < total < math.inf
    share = f", {part / total:.0%} of the time of all {len(report.cases):,}" if told else ""
    head = f"the slowest {counted(len(slowest), 'case') if len(slowest) > 1 else 'case'}{share}:"
    times = [time_text(case.seconds) for case in slowest]
    width = max(map(len, times))
    rows = [
        line("  ", span(pad_left(text, width), DIM), "  ", safe(case.id))
        for text, case in zip(times, slowest, strict=True)
    ]
    return [line(span(head, HEAD)), *rows]


def _seconds(case: CaseResult) -> float:
    return case.seconds if math.isfinite(case.seconds) else 0.0
