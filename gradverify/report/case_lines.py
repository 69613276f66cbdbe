"""The listing: a line per case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradverify.report.checks_text import check_groups, check_groups_in_brief, each_check, joined
from gradverify.report.explored_text import tries_part
from gradverify.report.lines import DIM, Line, cells, indented, line, pad, pad_left, plain, span, widest
from gradverify.report.safe import safe, shortened
from gradverify.report.screen import Glyphs, Screen
from gradverify.report.words import badge_span, case_badge
from gradverify.result import CaseResult, CheckResult, Exploration, Verdict, without_output

_GAP = "  "
_BADGE = 7  # columns of the usual badges
_TELLING = 12  # columns; less of a sentence says nothing
_ENTRIES = 1000  # of a check that has not run, for the room that its count takes
_SECONDS = 99.0  # of a case that has not run, likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A case's line before it is laid out."""

    head: Line  # badge and id
    seconds: str
    parts: tuple[Line, ...]  # every check by itself
    forms: tuple[Line, ...]  # all checks in one line, the longest first
    reason: str  # why, for a case that no check speaks for


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """The columns that all lines share."""

    head: int  # badge and id
    answer: int  # the checks
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A case before it has run."""

    id: str
    checks: tuple[str, ...]
    tries: int | None = None  # with other inputs, at most; None where the inputs are not changed


def case_lines(cases: Sequence[CaseResult], screen: Screen) -> list[Line]:
    """Return one line per case; only an id too long for the screen takes another."""
    entries = [_entry(case, screen.glyphs) for case in cases]
    widths = _widths(entries, screen.width)
    return [row for entry in entries for row in _lay_out(entry, widths, screen)]


def planned_widths(cases: Sequence[Planned], screen: Screen) -> Widths:
    """Return the columns of lines that are printed one by one, while nobody knows yet what all of them will say."""
    usual = {kind: _usual(*kind, screen.glyphs) for kind in {(case.checks, case.tries) for case in cases}}
    return _widths([_expected(case, usual[case.checks, case.tries]) for case in cases], screen.width)


def case_line(case: CaseResult, widths: Widths, screen: Screen) -> list[Line]:
    """Return the line of one case alone, or two where one is too narrow."""
    return _lay_out(_entry(case, screen.glyphs), widths, screen)


def time_text(seconds: float) -> str:
    """Return a duration in seconds with the digits that matter."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def _entry(case: CaseResult, glyphs: Glyphs) -> Entry:
    badge = case_badge(case, glyphs)
    explored = [tries_part(case.explored, glyphs)] if case.explored is not None else []
    return Entry(
        # a rare long badge moves its own id, not everyone's
        head=line(badge_span(badge, _BADGE), _GAP, safe(case.id)),
        seconds=time_text(case.seconds),
        parts=(*each_check(case.checks, glyphs), *explored),
        forms=_forms(case.checks, explored, glyphs),
        reason=safe(" ".join(without_output(case.message).split())) if not case.checks else "",
    )


def _forms(checks: Sequence[CheckResult], explored: Sequence[Line], glyphs: Glyphs) -> tuple[Line, ...]:
    forms = (form(checks, glyphs) for form in (each_check, check_groups, check_groups_in_brief))
    return tuple(joined([*form, *explored]) for form in forms)


def _expected(case: Planned, usual: Entry) -> Entry:
    """Return the line of a case as it usually comes out."""
    return replace(usual, head=line(" " * _BADGE, _GAP, safe(case.id)))


def _usual(checks: tuple[str, ...], tries: int | None, glyphs: Glyphs) -> Entry:
    """Return the line of a case without a name, all of whose checks pass."""
    results = tuple(CheckResult(check=name, verdict=Verdict.PASS, entries=_ENTRIES) for name in checks)
    explored = [] if tries is None else [tries_part(Exploration(tries=tries, budget=tries), glyphs)]
    return Entry(
        head=line(""),
        seconds=time_text(_SECONDS),
        parts=(*each_check(results, glyphs), *explored),
        forms=_forms(results, explored, glyphs),
        reason="",
    )


def _widths(entries: Sequence[Entry], width: int) -> Widths:
    seconds = widest(entry.seconds for entry in entries)
    room = width - seconds - 2 * len(_GAP)
    answers = sorted(size for entry in entries if (size := _answer_size(entry, room)) is not None)
    usual = answers[int(0.9 * (len(answers) - 1))] if answers else 0  # a few wide answers do not decide for all
    head = min(max((_size(entry.head) for entry in entries), default=0), max(room - usual, 0))
    longest = max((max(_size(entry.forms[0]), cells(entry.reason)) for entry in entries), default=0)
    return Widths(head=head, seconds=seconds, answer=min(room - head, longest))


def _answer_size(entry: Entry, room: int) -> int | None:
    """Return the columns of the answer that fits behind an id on one line, None where none does: it goes below."""
    sizes = (_size(form) for form in entry.forms[1:])
    return next((size for size in sizes if _size(entry.head) + size <= room), None)


def _lay_out(entry: Entry, widths: Widths, screen: Screen) -> list[Line]:
    head, seconds = _size(entry.head), span(pad_left(entry.seconds, widths.seconds), DIM)
    room = widths.answer - max(0, head - widths.head)
    answer = _answer(entry, room, screen.glyphs)
    if answer is not None:
        gap = pad("", widths.head - head) + _GAP
        return [line(*entry.head, gap, *answer, pad("", room - _size(answer)) + _GAP, seconds)]
    gap = pad("", widths.head + widths.answer + len(_GAP) - head) + _GAP
    return [line(*entry.head, gap, seconds), *indented(_below(entry, screen), _BADGE + len(_GAP))]


def _answer(entry: Entry, room: int, glyphs: Glyphs) -> Line | None:
    """Return what fits behind the id, None where that needs a line of its own."""
    if entry.reason:
        cut = shortened(entry.reason, room, glyphs.ellipsis)  # the whole of it stands further down
        return line(span(cut, DIM)) if cut == entry.reason or cells(cut) > _TELLING else line()
    return next((form for form in entry.forms if _size(form) <= room), None)


def _below(entry: Entry, screen: Screen) -> list[Line]:
    """Return the checks in lines of their own: one where that is wide enough."""
    width = screen.width - _BADGE - len(_GAP)
    rows: list[list[Line]] = [[]]
    for part in entry.parts:
        if rows[-1] and _size(joined([*rows[-1], part])) > width:
            rows.append([])
        rows[-1].append(part)
    return [joined(row) for row in rows]


def _size(row: Line) -> int:
    return cells(plain(row))
