"""The cases of some specs, before they are run."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.case import Case
from gradverify.paths import shown_target
from gradverify.report.lines import DIM, Line, cells, line, pad, span, widest
from gradverify.report.safe import safe
from gradverify.report.screen import Screen
from gradverify.report.words import counted

_GAP = "  "


def case_rows(cases: Sequence[Case]) -> list[Line]:
    """Return a line per case with tabs between its columns, the id first: for other programs."""
    return [line("\t".join(_columns(case))) for case in cases]


def case_table(cases: Sequence[Case], screen: Screen) -> list[Line]:
    """Return an aligned table with a heading and a count, stacked where it is too wide."""
    texts = [("case", "function", "checks", "device", "dtype"), *map(_columns, cases)]
    widths = [widest(column) for column in zip(*texts, strict=True)]
    if sum(widths) + len(_GAP) * (len(widths) - 1) > screen.width:
        rows = [row for columns in texts[1:] for row in _stacked(columns, screen.width)]
    else:
        rows = [line(*_aligned(columns, widths)) for columns in texts]
        rows[0] = line(span("".join(part.text for part in rows[0]), DIM))
    return [*rows, line(span(counted(len(cases), "case"), DIM))]


def _columns(case: Case) -> tuple[str, ...]:
    return (
        safe(case.id),
        safe(shown_target(case.target)),
        "draft" if case.draft else ",".join(case.checks),
        safe(case.device),
        safe(case.dtype),
    )


def _aligned(columns: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [pad(text, width) + _GAP for text, width in zip(columns, widths, strict=True)]


def _stacked(columns: Sequence[str], width: int) -> list[Line]:
    case, *about = columns[:3]
    joined = _GAP.join(about)
    rows = [joined] if cells(_GAP + joined) <= width else about
    return [line(case), *(line(span(_GAP + row, DIM)) for row in rows)]
