"""An exploration by itself as text, for an interactive session."""

from __future__ import annotations

from gradverify.report.case_detail import DetailOptions, explored_parts
from gradverify.report.lines import EMPTY, Line, line, to_text
from gradverify.report.safe import fold
from gradverify.report.screen import Detail, Screen
from gradverify.report.uncovered_text import uncovered_texts
from gradverify.result import CaseResult, Exploration, Verdict


def exploration_text(explored: Exploration, width: int) -> str:
    """Return what a screen of so many columns says of an exploration: what it found, counts, what was not exercised."""
    screen = Screen(width=width)
    case = _case_of(explored)
    rows: list[Line] = []
    for part in explored_parts(case, screen, DetailOptions()):
        rows += [*([EMPTY] if rows else []), *part]
    for text in uncovered_texts([case], Detail.VERBOSE, screen.glyphs):
        rows += map(line, fold(text, width))
    return to_text(rows).rstrip("\n")


def _case_of(explored: Exploration) -> CaseResult:
    """Return a case without a name or a spec: there is no run to look at again."""
    return CaseResult(
        id="",
        spec="",
        line=0,
        function="",
        source=None,
        device="",
        dtype="",
        sample=0,
        seed=0,
        verdict=Verdict.PASS if explored else Verdict.FAIL,
        expected=Verdict.PASS,
        as_expected=bool(explored),
        seconds=0.0,
        explored=explored,
    )
