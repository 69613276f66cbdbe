"""What pytest prints of a case that is not as expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gradverify.errors import GradverifyError
from gradverify.report.case_detail import DetailOptions, case_detail
from gradverify.report.lines import to_text
from gradverify.report.safe import safe
from gradverify.report.screen import Screen
from gradverify.result import CaseResult, without_output

_WIDTH = 100  # columns; pytest does not say how many there are


class UnexpectedCase(GradverifyError):
    """A case that is not as its spec expects."""

    def __init__(self, result: CaseResult) -> None:
        self.result = result
        super().__init__(_sentence(result))


class Writer(Protocol):
    """The part of pytest's terminal that is written to."""

    def line(self, text: str = "") -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The one line of a failure for pytest's summary and for JUnit files."""

    path: str
    lineno: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A failure in the form that pytest takes in place of a traceback."""

    text: str
    reprcrash: Crash

    def __str__(self) -> str:
        return self.text

    def toterminal(self, out: Writer) -> None:
        """Write the whole of it."""
        for row in self.text.splitlines():
            out.line(row)


def told(error: GradverifyError, path: str, line: int) -> Told:
    """Return what there is to say: the table of wrong elements, or the sentence of a mistake."""
    sentence = safe(str(error))
    crash = Crash(path=path, lineno=line, message=sentence)
    if not isinstance(error, UnexpectedCase):
        return Told(text=sentence, reprcrash=crash)
    rows = case_detail(error.result, Screen(width=_WIDTH), DetailOptions(rows=None))
    return Told(text=to_text(rows), reprcrash=crash)


def _sentence(result: CaseResult) -> str:
    messages = [result.message]
    messages += [finding.message for check in result.checks for finding in check.findings]
    messages += [check.message for check in result.checks if check.verdict is result.verdict]
    first = without_output(next((message for message in messages if message), "")).partition("\n")[0]
    return f"{result.verdict.value}: {first}" if first else result.verdict.value
