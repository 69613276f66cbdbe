"""Tasks without an answer to results that say why."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.case import Absence, Case, Target, TargetProblem
from gradverify.problem import broken_off, not_run
from gradverify.result import PRINTED, CaseResult, CheckResult, Verdict
from gradverify.run.outcome import could_not_run, judged
from gradverify.run.task import Loss, TaskLost


def lost_case(case: Case, lost: TaskLost) -> CaseResult:
    """Return the result of a case that took its worker with it, or took too long.

    Checks that had finished keep their results; the check that was running has a finding that says what happened.
    """
    code, message = _why(lost, case.timeout)
    if lost.checks is None:
        return could_not_run(case, code, message, seconds=lost.seconds)
    *finished, last = (*lost.checks, *map(_nothing_yet, case.checks[len(lost.checks) : len(lost.checks) + 1]))
    checks = with_rest((*finished, broken_off(last, code, message)), case.checks)
    return judged(case, checks, source=None, seconds=lost.seconds)


def with_rest(finished: tuple[CheckResult, ...], checks: Sequence[str]) -> tuple[CheckResult, ...]:
    """Return the results up to a check that did not finish, and a skip for each check after it."""
    return (*finished, *(not_run(name, after=finished[-1]) for name in checks[len(finished) :]))


def lost_target(target: Target, lost: TaskLost, timeout: float) -> TargetProblem:
    """Return why a target could not be loaded when importing it did not come to an end."""
    code, message = _why(lost, timeout)
    return TargetProblem(absence=Absence.RAISED, message=f"importing {target.written}: {message}", code=code)


def _nothing_yet(check: str) -> CheckResult:
    return CheckResult(check=check, verdict=Verdict.SKIP)


def _why(lost: TaskLost, timeout: float) -> tuple[str, str]:
    code, said = ("GV904", f"timed out after {timeout:g} s") if lost.loss is Loss.TIMEOUT else ("GV905", lost.detail)
    said = f"{said}, last in {lost.place}" if lost.place else said
    return code, f"{said}{PRINTED}{lost.output}" if lost.output else said
