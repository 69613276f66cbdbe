"""What is wrong with a case in one line, and all of it as plain text."""

from __future__ import annotations

from gradverify.problem import Problem, own_message, problems_of, said_once
from gradverify.report.case_detail import DetailOptions, case_detail
from gradverify.report.lines import to_text
from gradverify.report.safe import safe
from gradverify.report.screen import Screen
from gradverify.result import CaseResult, without_output

_WIDTH = 100  # columns of plain text; nobody knows the window that will show it
_ROWS = 10  # elements per finding


def headline(case: CaseResult) -> str:
    """Return the first thing that is wrong, and how many more there are."""
    first, *others = said_once(problems_of(case))
    return sentence(first) + (f" (and {len(others)} more)" if others else "")


def sentence(problem: Problem) -> str:
    """Return one problem as one line: check, code, what is wrong, cause."""
    lead = " ".join(part for part in (problem.check, problem.code) if part)
    says = safe(without_output(problem.message).partition("\n")[0].strip())
    cause = problem.finding.cause if problem.finding else None
    text = f"{safe(lead)}: {says}" if lead else says
    return f"{text}; cause {safe(cause)}" if cause else text


def remark(case: CaseResult) -> str:
    """Return what is to be said of a case besides its findings: what a spec or a baseline expected of it."""
    told = any(problem.check for problem in problems_of(case))
    return " ".join(safe(without_output(own_message(case))).split()) if told else ""


def note(case: CaseResult) -> str:
    """Return the note about the point at which a case was judged, as one line."""
    return " ".join(safe(case.note).split())


def details(case: CaseResult) -> str:
    """Return what the screen would show of a case, without colour."""
    return to_text(case_detail(case, Screen(width=_WIDTH), DetailOptions(rows=_ROWS)))
