"""Verdicts as a reader sees them: a sign, a word and a colour, each enough without the others."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.report.lines import BAD, DIM, GOOD, HEAD, WARN, Line, Span, cells, line, span
from gradverify.report.screen import Glyphs, Screen
from gradverify.result import CaseResult, Verdict

_STYLES = {
    Verdict.PASS: GOOD,
    Verdict.FAIL: BAD,
    Verdict.INCONCLUSIVE: WARN,
    Verdict.ERROR: BAD,
    Verdict.SKIP: DIM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A verdict on the screen."""

    symbol: str
    word: str
    style: str

    def __str__(self) -> str:
        return f"{self.symbol} {self.word}"


def badge_of(verdict: Verdict, glyphs: Glyphs) -> Badge:
    """Return how a single verdict is shown."""
    return Badge(symbol=_symbol(verdict, glyphs), word=verdict.value, style=_STYLES[verdict])


def case_badge(case: CaseResult, glyphs: Glyphs) -> Badge:
    """Return how a case's verdict is shown: loud only where it is not as expected."""
    if case.as_expected:
        return _expected(case, glyphs)
    if case.verdict is Verdict.FAIL:
        return Badge(symbol=glyphs.cross, word="FAIL", style=BAD)
    if case.verdict in (Verdict.PASS, Verdict.SKIP):
        return Badge(symbol=glyphs.cross, word=case.verdict.upper(), style=BAD)
    return badge_of(case.verdict, glyphs)


def badge_span(badge: Badge, width: int = 0) -> Span:
    """Return a badge as a piece of a line, padded to `width` columns."""
    return span(str(badge).ljust(width), badge.style)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return "1 case", "2,000 cases"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def heading(case: CaseResult, name: str, screen: Screen) -> Line:
    """Return the line that a case's details stand under, ruled to the edge."""
    badge = case_badge(case, screen.glyphs)
    rest = screen.width - cells(f"{badge}  {name}  ")
    return line(badge_span(badge), "  ", span(name, HEAD), "  ", span(screen.glyphs.rule * rest, DIM))


def _expected(case: CaseResult, glyphs: Glyphs) -> Badge:
    if case.verdict is Verdict.SKIP:
        return Badge(symbol="-", word="skip", style=DIM)
    why = "expected" if case.known is None else "known"
    word = case.verdict.value if case.verdict is Verdict.PASS else f"{case.verdict.value} ({why})"
    return Badge(symbol=glyphs.tick, word=word, style=GOOD)


def _symbol(verdict: Verdict, glyphs: Glyphs) -> str:
    return {
        Verdict.PASS: glyphs.tick,
        Verdict.FAIL: glyphs.cross,
        Verdict.INCONCLUSIVE: "?",
        Verdict.ERROR: "!",
        Verdict.SKIP: "-",
    }[verdict]
