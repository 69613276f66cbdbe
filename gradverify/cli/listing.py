"""Print one line per case, during the run if no progress line is drawn, else at the end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum

from gradverify.case import Case
from gradverify.cli.request import Request
from gradverify.cli.terminal import OutputError, Terminal, is_terminal, show
from gradverify.report.case_lines import Planned, case_line, planned_widths
from gradverify.report.repeated_skips import is_repeated_skip
from gradverify.result import CaseResult


class Listing(StrEnum):
    """When the line of a case is printed."""

    MEANWHILE = "meanwhile"  # when the case finishes, in that order
    AFTERWARDS = "afterwards"  # at the end, in the order of the specs
    NEVER = "never"  # stdout has a report for a program instead


def usual_listing() -> Listing:
    """Return AFTERWARDS if stdout and stderr are terminals: then a progress line is drawn during the run."""
    drawn = is_terminal(sys.stdout) and is_terminal(sys.stderr)
    return Listing.AFTERWARDS if drawn else Listing.MEANWHILE


def planned(cases: Sequence[Case], request: Request) -> list[Planned]:
    """Return what is known of the cases before they run."""
    budget = request.budget
    return [
        Planned(id=case.id, checks=case.checks, tries=(budget or case.explore.budget) if request.explore else None)
        for case in cases
    ]


class Printer:
    """Prints the line of each case, of repeated skips only if all are asked for.

    A write error is kept until `check`, so that the run goes on.
    """

    def __init__(self, cases: Sequence[Planned], terminal: Terminal, *, all_skips: bool = False) -> None:
        self._terminal = terminal
        self._widths = planned_widths(cases, terminal.screen)
        self._all_skips = all_skips
        self._skips: Counter[str] = Counter()  # printed or left out, by reason
        self._lost: OutputError | None = None

    def print(self, result: CaseResult) -> None:
        """Print one line."""
        if self._lost is not None or (not self._all_skips and is_repeated_skip(result, self._skips)):
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
