"""Results for tasks whose worker crashed or ran out of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradverify.case import Absence, Case, Target, TargetProblem, Trying
from gradverify.problem import broken_off, not_run
from gradverify.result import PRINTED, CaseResult, CheckResult, Exploration, Verdict, without_output
from gradverify.run.outcome import case_result, could_not_run
from gradverify.run.task import Loss, TaskLost


def lost_case(case: Case, lost: TaskLost) -> CaseResult:
    """Return the result of a case whose worker crashed or ran out of time.

    Checks that had finished keep their results; the check that was running gets a finding with the reason. If none was
    running, the inputs were about to be changed.
    """
    code, message = _code_and_message(lost, case.timeout)
    if lost.checks is None:
        return could_not_run(case, code, message, seconds=lost.seconds)
    if case.exploring is not None and len(lost.checks) == len(case.checks):
        explored = _not_begun(message) if lost.trying is None else _with_lost(lost.trying, message)
        return case_result(case, lost.checks, source=None, seconds=_seconds(case, lost), explored=explored)
    *finished, last = (*lost.checks, *map(_not_finished, case.checks[len(lost.checks) : len(lost.checks) + 1]))
    checks = with_skipped_rest((*finished, broken_off(last, code, message)), case.checks)
    return case_result(case, checks, source=None, seconds=lost.seconds)


def after_lost_try(case: Case, lost: TaskLost, trying: Trying) -> Case:
    """Return the case whose exploration goes on after a try that ended its worker."""
    assert case.exploring is not None
    _, message = _code_and_message(lost, case.timeout)
    ended = replace(trying, so_far=_with_lost(trying, message))
    going_on = replace(case.exploring, after=ended, checks=lost.checks or (), seconds=_seconds(case, lost))
    return replace(case, exploring=going_on)


def interrupted_case(case: Case, lost: TaskLost) -> CaseResult | None:
    """Return the result of a case whose inputs were changed until an interrupt; None if that had found no failure."""
    if lost.trying is None or not lost.trying.so_far.failures:
        return None
    explored = replace(lost.trying.so_far, message="interrupted")
    return case_result(case, lost.checks or (), source=None, seconds=_seconds(case, lost), explored=explored)


def _seconds(case: Case, lost: TaskLost) -> float:
    return lost.seconds + (case.exploring.seconds if case.exploring else 0.0)


def _not_begun(message: str) -> Exploration:
    return Exploration(tries=0, budget=0, message=f"before the first try, the worker {without_output(message)}")


def _with_lost(trying: Trying, message: str) -> Exploration:
    lost = f"{trying.phrase}: {without_output(message)}"
    return replace(trying.so_far, lost=(*trying.so_far.lost, lost))


def with_skipped_rest(finished: tuple[CheckResult, ...], checks: Sequence[str]) -> tuple[CheckResult, ...]:
    """Return the results up to a check that did not finish, followed by a skip for each later check."""
    return (*finished, *(not_run(name, after=finished[-1]) for name in checks[len(finished) :]))


def lost_target(target: Target, lost: TaskLost, timeout: float) -> TargetProblem:
    """Return the problem of a target whose import crashed its worker or ran out of time."""
    code, message = _code_and_message(lost, timeout)
    return TargetProblem(absence=Absence.RAISED, message=f"importing {target.written}: {message}", code=code)


def lost_message(lost: TaskLost, timeout: float) -> str:
    """Return how a task was lost, as the predicate of a sentence, with the end of what it printed."""
    return _code_and_message(lost, timeout)[1]


def _not_finished(check: str) -> CheckResult:
    return CheckResult(check=check, verdict=Verdict.SKIP)


def _code_and_message(lost: TaskLost, timeout: float) -> tuple[str, str]:
    code, text = ("GV904", f"timed out after {timeout:g} s") if lost.loss is Loss.TIMEOUT else ("GV905", lost.detail)
    text = f"{text}, last in {lost.place}" if lost.place else text
    return code, f"{text}{PRINTED}{lost.output}" if lost.output else text
