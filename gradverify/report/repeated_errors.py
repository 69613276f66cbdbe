"""Cases that could not be run for one reason: a module with a mistake stops every case that imports it."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.report.lines import DIM, Line, line, span
from gradverify.report.safe import fold, safe, shortened
from gradverify.report.screen import Screen
from gradverify.report.words import counted
from gradverify.result import CaseResult, Verdict

_IMPORTING = "GV901: importing "
_ROWS = 2  # lines that name the other cases


def grouped(cases: Sequence[CaseResult]) -> list[tuple[CaseResult, ...]]:
    """Return the cases in groups that have one error of an import, in the order of their first cases.

    The error is what was raised, and in which line. A case that has any other message is a group of its own.
    """
    groups: dict[str, list[CaseResult]] = {}
    for case in cases:
        groups.setdefault(_error_of(case) or case.id, []).append(case)
    return [tuple(group) for group in groups.values()]


def others_lines(others: Sequence[CaseResult], screen: Screen) -> list[Line]:
    """Return how many other cases the error of the case above stops, and as many of their ids as two lines hold."""
    if not others:
        return []
    ids = ", ".join(safe(case.id) for case in others)
    rows = fold(f"the same in {counted(len(others), 'more case')}: {ids}", screen.width - 2)
    last = shortened(" ".join(rows[_ROWS - 1 :]), screen.width - 2, screen.glyphs.ellipsis)
    return [line("  ", span(row, DIM)) for row in [*rows[: _ROWS - 1], *([last] if last else [])]]


def _error_of(case: CaseResult) -> str:
    """Return what the import of a case's module raised, "" if the case has another message."""
    if case.verdict is not Verdict.ERROR or case.checks or not case.message.startswith(_IMPORTING):
        return ""
    return case.message.partition(" raised ")[2]
