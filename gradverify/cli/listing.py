"""The lines of cases, each printed as soon as its case is finished where no progress line can be drawn."""

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

    MEANWHILE = "meanwhile"  # as soon as it is finished, in that order
    AFTERWARDS = "afterwards"  # with all others, in the order of the specs


def usual_listing() -> Listing:
    """Return what suits this process's streams: on a terminal there is a progress line while cases run."""
    drawn = is_terminal(sys.stdout) and is_terminal(sys.stderr)
    return Listing.AFTERWARDS if drawn else Listing.MEANWHILE


class Printer:
    """Prints the line of each case; an output that takes nothing more is no reason to lose the run."""

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
        """Raise OutputError where a line could not be printed."""
        if self._lost is not None:
            raise self._lost


def printing(tell: Callable[[CaseResult], None], printer: Printer) -> Callable[[CaseResult], None]:
    """Return what prints a case's line and then tells the other listener."""

    def finished(result: CaseResult) -> None:
        printer.print(result)
        tell(result)

    return finished
