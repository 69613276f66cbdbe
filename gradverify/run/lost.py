"""Tasks without an answer to results that say why."""

from __future__ import annotations

from gradverify.case import Absence, Case, Target, TargetProblem
from gradverify.result import PRINTED, CaseResult
from gradverify.run.outcome import could_not_run
from gradverify.run.task import Loss, TaskLost


def lost_case(case: Case, lost: TaskLost) -> CaseResult:
    """Return the result of a case that took its worker with it, or took too long."""
    code, message = _why(lost, case.timeout)
    return could_not_run(case, code, message, seconds=lost.seconds)


def lost_target(target: Target, lost: TaskLost, timeout: float) -> TargetProblem:
    """Return why a target could not be loaded when importing it did not come to an end."""
    code, message = _why(lost, timeout)
    return TargetProblem(absence=Absence.RAISED, message=f"importing {target.written}: {message}", code=code)


def _why(lost: TaskLost, timeout: float) -> tuple[str, str]:
    code, said = ("GV904", f"timed out after {timeout:g} s") if lost.loss is Loss.TIMEOUT else ("GV905", lost.detail)
    said = f"{said}, last in {lost.place}" if lost.place else said
    return code, f"{said}{PRINTED}{lost.output}" if lost.output else said
