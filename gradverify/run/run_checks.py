"""Run checks on a problem. The runner and the Python API both go through here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gradverify.case import Case, Settings, Tolerances
from gradverify.checks import gradcheck, gradgradcheck
from gradverify.checks.failures import defective, skipped
from gradverify.checks.reference import check as reference
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import Problem
from gradverify.deadline import Deadline, seconds_left
from gradverify.diagnosis.diagnose import diagnose
from gradverify.errors import GradverifyError, what_is_lacking
from gradverify.problem import ran_out_of_time
from gradverify.result import CheckResult, Verdict
from gradverify.run.describe_exception import defect_text, is_of_user_code
from gradverify.run.memory import is_out_of_memory
from gradverify.run.no_answer import with_skipped_rest
from gradverify.run.surrogate import Surrogate, gradcheck_against

OnResults = Callable[[tuple[CheckResult, ...]], None]


def ignore_results(_results: tuple[CheckResult, ...]) -> None:
    """Do nothing with the results so far."""


def run_checks(
    problem: Problem,
    checks: Sequence[str],
    settings_of: Mapping[str, Settings],
    on_results: OnResults = ignore_results,
    surrogate: Surrogate | None = None,
) -> tuple[CheckResult, ...]:
    """Return the results of the checks, run in the order given, each with its own settings.

    `on_results` is called with the results so far before the first check and after each. Each check has a share of the
    time left, see `share`; once the problem's deadline has passed, the checks left are skipped. With a surrogate,
    gradcheck takes differences of the surrogate, gradgradcheck uses the surrogate's kinks in place of forward's, and
    reference compares with nothing but a reference.
    All global generators are seeded.
    """
    finished: tuple[CheckResult, ...] = ()
    on_results(finished)
    for place, name in enumerate(checks):
        deadline = share(problem.deadline, len(checks) - place)
        given = replace(problem, deadline=deadline)
        other = None if surrogate is None else replace(surrogate, problem=replace(surrogate.problem, deadline=deadline))
        finished = (*finished, _run(name, given, settings_of[name], other))
        finished = finished if surrogate is not None else _with_proof(finished)
        on_results(finished)
        if ran_out_of_time(finished[-1]) and seconds_left(problem.deadline) <= 0:
            break
    return with_skipped_rest(finished, checks)


def _with_proof(results: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """Make GV206 a fail if gradcheck passes: the first derivative is right at this point, and wrong close to it.

    Elsewhere it is a remark, since gradcheck fails by the same mistake.
    """
    if not any(each.check == gradcheck.NAME and each.verdict is Verdict.PASS for each in results):
        return results
    return tuple(_failed_by_proof(each) if each.verdict is Verdict.PASS else each for each in results)


def _failed_by_proof(result: CheckResult) -> CheckResult:
    findings = [
        replace(each, verdict=Verdict.FAIL, message=f"{each.message}; the first derivative is right here by accident")
        if each.code == "GV206"
        else each
        for each in result.findings
    ]
    is_proof = tuple(findings) != result.findings
    return replace(result, verdict=Verdict.FAIL, findings=tuple(findings)) if is_proof else result


def share(deadline: Deadline | None, checks: int) -> Deadline | None:
    """Return the deadline of the next of some checks: after 2 / (checks + 1) of the time that is left.

    If every check uses up its share, the shares of three are as 3 : 2 : 1. Time that a check does not need is left to
    those after it, and the last check has all that is left.
    """
    left = seconds_left(deadline)
    if deadline is None or checks == 1 or left <= 0:
        return deadline
    part = 2 / (checks + 1) * left
    return Deadline(at=deadline.at - left + part, seconds=float(f"{part:.2g}"), share_of=deadline.seconds)


def _run(name: str, problem: Problem, settings: Settings, surrogate: Surrogate | None) -> CheckResult:
    try:
        return _result_of(name, problem, settings, surrogate)
    except Exception as error:
        if not _is_defect(error):
            raise
        return defective(name, problem, defect_text(error))


def _is_defect(error: Exception) -> bool:
    """True for an exception of gradverify itself: what the user's calls raise is a finding already."""
    is_meant = isinstance(error, GradverifyError) or what_is_lacking(error) is not None
    is_late = "CUDA error" in str(error)  # of a kernel that was started before
    return not (is_meant or is_late or is_of_user_code(error) or is_out_of_memory(error))


def _result_of(name: str, problem: Problem, settings: Settings, surrogate: Surrogate | None) -> CheckResult:
    if surrogate is None:
        return run_check(name, problem, settings, diagnose)
    if name == gradcheck.NAME:
        return gradcheck_against(surrogate, settings, diagnose)
    if name == reference.NAME and problem.reference is None:
        return skipped(
            name, problem, "backward follows the surrogate, not forward; `reference` names plain code for both"
        )
    return run_check(name, surrogate.problem if name == gradgradcheck.NAME else problem, settings, diagnose)


def settings_of(case: Case) -> dict[str, Settings]:
    """Return the settings of each of a case's checks."""
    return {
        name: Settings(
            tolerances=case.tolerances.get(name, Tolerances()),
            seed=case.seed,
            torch_gradcheck=case.torch_gradcheck,
            max_elements=case.max_elements,
            max_evaluations=case.max_evaluations,
            tf32=case.tf32,
        )
        for name in case.checks
    }
