"""What is wrong with a case, one entry per finding, and the results of checks that did not finish."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gradverify.result import CaseResult, CheckResult, Discovery, Exploration, Finding, Verdict, without_output, worst

OUT_OF_TIME = "GV904"  # code of the finding that says that the time limit ended a check
DEFECT = "GV909"  # code of the finding that says that an exception of gradverify itself ended a check
_CODED = re.compile(r"(GV[0-9]{3}): (.*)", re.DOTALL)
_QUIET = (Verdict.PASS, Verdict.SKIP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason why a case did not pass."""

    check: str | None = None  # None where the case as a whole is concerned
    code: str | None = None  # GVnnn; None where the verdict is what nobody expected
    verdict: Verdict
    message: str  # its first line says what is wrong
    finding: Finding | None = None  # with the elements that show it
    changed: str = ""  # how the inputs differ from those written, "" where they do not


def problems_of(case: CaseResult) -> tuple[Problem, ...]:
    """Return everything that is wrong with a case, in the order of its checks; at least one entry.

    What was found at other inputs comes last, with a message that begins with what was changed.
    """
    found = [problem for check in case.checks for problem in problems_of_check(check)]
    found += [
        problem
        for each in (case.explored.failing if case.explored is not None else ())
        for problem in _of_discovery(each)
    ]
    return tuple(found) or (_of_case(case),)


def problems_of_check(check: CheckResult) -> list[Problem]:
    """Return what is wrong with one check; none if it passed or was skipped."""
    if check.verdict in _QUIET:
        return []
    found = [
        Problem(check=check.check, code=entry.code, verdict=entry.verdict, message=entry.message, finding=entry)
        for entry in check.findings
        if entry.verdict not in _QUIET
    ]
    return found or [Problem(check=check.check, verdict=check.verdict, message=check.message or check.verdict.value)]


BROKEN_OFF = "broken off"  # says an exploration that an exception ended; the case says by which


def found_at(found: Discovery, explored: Exploration) -> str:
    """Return "found at try 9 of 120: stride: 1 (was 2)"."""
    return f"found at try {found.number:,} of {explored.tries:,}: {', '.join(found.changes)}"


def own_message(case: CaseResult) -> str:
    """Return a case's message without what its first failing discovery says, which stands over that one's inputs."""
    failing = case.explored.failing if case.explored is not None else ()
    first = found_at(failing[0], case.explored) if failing and case.explored is not None else ""
    return case.message.removeprefix(first).removeprefix("; ")


def said_once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems, as one where several checks say the same: that forward raises, all of them find out."""
    groups: dict[object, list[Problem]] = {}
    for number, problem in enumerate(problems):
        shows = problem.finding is not None and problem.finding.elements
        groups.setdefault(number if shows else (problem.code, problem.message), []).append(problem)
    return tuple(replace(group[0], check=_checks(group)) for group in groups.values())


def broken_off(found: CheckResult, code: str, why: str, verdict: Verdict = Verdict.ERROR) -> CheckResult:
    """Return the result of a check that did not finish: what it had found, and a finding that says why it ended.

    `verdict` is that of the finding. The check has it too, unless it had found something worse.
    """
    said = without_output(why)
    return replace(
        found,
        verdict=worst((found.verdict, verdict)),
        message=f"{found.message}; {said}" if found.message else said,
        findings=(*found.findings, Finding(code=code, verdict=verdict, message=why)),
    )


def ran_out_of_time(check: CheckResult) -> bool:
    """Return True if the time limit ended the check."""
    return any(finding.code == OUT_OF_TIME for finding in check.findings)


def not_run(check: str, after: CheckResult) -> CheckResult:
    """Return the skip of a check that comes after one that did not finish."""
    why = without_output(after.findings[-1].message)
    return CheckResult(check=check, verdict=Verdict.SKIP, message=f"not run: {after.check} {why}")


def _checks(group: Sequence[Problem]) -> str | None:
    return ", ".join(dict.fromkeys(problem.check for problem in group if problem.check)) or None


def _of_discovery(found: Discovery) -> list[Problem]:
    changed = ", ".join(found.changes)
    problems = [problem for check in found.checks for problem in problems_of_check(check)]
    return [replace(each, changed=changed, message=f"{changed}: {each.message}") for each in problems]


def _of_case(case: CaseResult) -> Problem:
    coded = _CODED.fullmatch(case.message)
    if coded:
        return Problem(code=coded[1], verdict=case.verdict, message=coded[2])
    if case.message and case.verdict is case.expected:  # every check is as expected, a claim is not
        return Problem(verdict=case.verdict, message=case.message)
    surprise = f"expected {case.expected.value}, found {case.verdict.value}"
    more = case.message.removeprefix(f"expected {case.expected.value}").strip(" ,;")
    return Problem(verdict=case.verdict, message=f"{surprise}: {more}" if more else surprise)
