"""What `--watch` shows around the report of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from gradverify.cli.terminal import Terminal, say, show
from gradverify.cli.watching.keys import has_keys
from gradverify.report.case_lines import case_lines
from gradverify.report.lines import BAD, DIM, EMPTY, Line, line, span
from gradverify.report.safe import safe
from gradverify.report.words import counted
from gradverify.result import CaseResult

_CLEAR = "\x1b[H\x1b[2J"
_MOST_NAMES = 3


def begin(text: str, notes: Sequence[str], terminal: Terminal) -> None:
    """Start a screen with the reason for a run; without a terminal, a paragraph."""
    say(_CLEAR if has_keys() else "")
    show([line(span(safe(text), DIM)), *(line(span(safe(note), DIM)) for note in notes), EMPTY], terminal)


def end(others: Sequence[CaseResult], total: int, terminal: Terminal, *, is_first: bool = False) -> None:
    """Show which cases of earlier runs are not as expected, and the keys. `is_first` if nothing follows `begin`."""
    rows: list[Line] = []
    if others:
        verb = "is" if len(others) == 1 else "are"
        what = f"{counted(len(others), 'other case')} {verb} still not as expected:"
        rows += [EMPTY, line(span(what, BAD)), *case_lines(others, terminal.screen)]
    if has_keys():
        watched = f"watching {counted(total, 'case')}: a runs all, Enter the last again, q quits"
        rows += [EMPTY, line(span(watched, DIM))]
    show((rows[1:] if is_first else rows) or [EMPTY], terminal)


def reason(saved: Collection[Path], chosen: int, total: int) -> str:
    """Return "ops.py changed: 1 of 3 cases", without a number if there is nothing to run; "removed" if all are gone."""
    telling = [file for file in saved if file.suffix or file.exists()]  # without temporary files of an editor
    names = sorted(file.name for file in telling or saved)
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    count = f": {chosen:,} of {counted(total, 'case')}" if chosen else ""
    verb = "changed" if any(file.exists() for file in telling or saved) else "removed"
    return f"{', '.join(names[:_MOST_NAMES])}{more} {verb}{count}"
