"""Print one line per case, during the run if no progress line is drawn, else at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum

from gradverify.case import Case
from gradverify.cli.terminal import OutputError, Terminal, is_terminal, show
from gradverify.report.case_lines import Planned, case_line, planned_widths
from gradverify.result import CaseResult


class Listing(StrEnum):
    """When the line of a case is printed."""

    MEANWHILE = "meanwhile"  # when the case finishes, in that order
    AFTERWARDS = "afterwards"  # at the end, in the order of the specs


def usual_listing() -> Listing:
    """Return AFTERWARDS if stdout and stderr are terminals: then a progress line is drawn during the run."""
    drawn = is_terminal(sys.stdout) and is_terminal(sys.stderr)
    return Listing.AFTERWARDS if drawn else Listing.MEANWHILE


class Printer:
    """Prints the line of each case. A write error is kept until `check`, so that the run goes on."""

    def __init__(self, cases: Sequence[Case], terminal: Terminal) -> None:
        self._terminal = terminal
        self._widths = planned_widths([Planned(id=case.id, checks=case.checks) for case in cases], terminal.screen)
        self._lost: OutputError | None = None

    def print(self, result: CaseResult) -> None:
        """Print one line."""
        if self._lost is not None:
            return
        try:
            show(case_line(result, self._widths, self._terminal.screen), self._terminal)
        except OutputError as error:
            self._lost = error

    def check(self) -> None:
        """Raise OutputError if a line could not be printed."""
        if self._lost is not None:
            raise self._lost


def with_printing(tell: Callable[[CaseResult], None], printer: Printer) -> Callable[[CaseResult], None]:
    """Return a callback that prints a case's line and then calls `tell`."""

    def finished(result: CaseResult) -> None:
        printer.print(result)
        tell(result)

    return finished
