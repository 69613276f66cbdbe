"""The check that backward is the derivative of forward, in every entry of the Jacobian."""

from __future__ import annotations

from dataclasses import replace

from gradverify.case import Settings
from gradverify.checks.cut_off import cut_off
from gradverify.checks.derivative import (
    Judgement,
    Question,
    is_worn_out,
    judge,
    keeping_unless_worn,
    on_fresh_graphs,
    seeded,
    unjudgeable,
)
from gradverify.checks.disagreement import with_torch_outcome
from gradverify.checks.failures import evaluations, failed_call, inconclusive
from gradverify.checks.left_out import left_out
from gradverify.checks.overwritten import overwrites
from gradverify.checks.single_output import wrong_if_alone
from gradverify.checks.summed_outputs import wrong_if_summed
from gradverify.checks.torch_gradcheck import run_gradcheck
from gradverify.checks.untracked import containers_seen, never_called, with_reasons
from gradverify.core.decide.context import unchanged
from gradverify.core.forward.repeatable import Repeatable, made_repeatable
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.deadline import keeping
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnose, undiagnosed
from gradverify.result import CheckResult, Finding, Verdict

NAME = "gradcheck"
SERIES = 100  # of its codes
_AFFINE, _DETACHED = "missing-cotangent", "detached"  # cause of non-linear gradients, and the one they look like
_GROSS = 0.03  # relative to the gradient: beside wrong entries, a smaller deviation from linearity is not reported
RANDOM = "the forward is random: it differs between two calls at one point, even when seeded before each"


def run(problem: Problem, settings: Settings, diagnose: Diagnose = undiagnosed) -> CheckResult:
    """Compare every entry with finite differences; torch's gradcheck runs beside it. Raises EvaluationError."""
    with containers_seen() as seen:
        tape = record(problem)
    result = never_called(NAME, problem, tape, seen) or unjudgeable(NAME, SERIES, problem, tape)
    if result is not None:
        return result
    ready = made_repeatable(problem, tape, settings.seed)
    if ready is None:
        return inconclusive(NAME, problem, f"GV{SERIES + 4}", RANDOM)
    try:
        question = Question(check=NAME, series=SERIES, settings=settings, reconsider=unchanged, diagnose=diagnose)
        judged = judge(question, ready)
        with keeping_unless_worn(judged.found, judged.result):
            found = _as_used(judged, ready, settings)
            worn = is_worn_out(judged, found)
        if worn:  # the first result is not kept if time runs out here
            found, ready = _second_look(question, ready, found)
        with keeping(found):
            found = replace(found, evaluations=evaluations(ready.problem))
            found = with_reasons(found, ready.problem, tape, seen)
            found = seeded(_with_remarks(found, tuple(cut_off(ready)), left_out(ready.tape)), problem, ready)
    except EvaluationError as error:
        found = failed_call(NAME, ready.problem, error)
    return with_torch_outcome(found, run_gradcheck(ready.problem, settings, ready.tape))


def _second_look(question: Question, ready: Repeatable, first: CheckResult) -> tuple[CheckResult, Repeatable]:
    """Judge again with a new graph for every vjp; keep the first result if user code raises."""
    try:
        again = on_fresh_graphs(ready)
        return _as_used(judge(question, again), again, question.settings), again
    except EvaluationError:
        return first, ready


def _as_used(judged: Judgement, ready: Repeatable, settings: Settings) -> CheckResult:
    """Add fails for a backward that is right for the Jacobian, but not for one output alone or for sums."""
    result = judged.result
    if result.verdict is Verdict.FAIL and judged.found is not None:
        return _beside_sums(result, tuple(wrong_if_summed(judged.found, _GROSS)), ready.problem)
    if result.verdict not in (Verdict.PASS, Verdict.INCONCLUSIVE):
        return result
    wrong = (*overwrites(judged.found), *wrong_if_alone(ready, settings.seed))
    if judged.found is not None and result.verdict is Verdict.PASS:  # else a deviation may be rounding
        wrong += tuple(wrong_if_summed(judged.found))
    result = replace(result, evaluations=evaluations(ready.problem))
    if not wrong:
        return result
    return replace(result, verdict=Verdict.FAIL, message=wrong[0].message, findings=(*wrong, *result.findings))


def _beside_sums(result: CheckResult, together: tuple[Finding, ...], problem: Problem) -> CheckResult:
    """Add the fails for sums of outputs to those for single outputs.

    A gradient that is zero for single outputs only is not detached, so that cause is removed.
    """
    explained = {finding.wrt for finding in result.findings if finding.cause == _AFFINE}
    together = tuple(finding for finding in together if finding.wrt not in explained)
    inputs = {finding.wrt for finding in together}
    if not inputs:
        return result
    findings = [
        replace(finding, cause=None, message=finding.message.partition("\n")[0])
        if finding.wrt in inputs and finding.cause == _DETACHED
        else finding
        for finding in result.findings
    ]
    message = f"{result.message}; backward is not linear"
    return replace(result, message=message, findings=(*together, *findings), evaluations=evaluations(problem))


def _with_remarks(result: CheckResult, remarks: tuple[Finding, ...], beside: str) -> CheckResult:
    """Add remarks, which do not change the verdict."""
    parts = [f"no gradient through {', '.join(remark.of or '' for remark in remarks)}"] if remarks else []
    parts += [beside] if beside else []
    if not parts:
        return result
    return replace(result, findings=(*result.findings, *remarks), message="; ".join([result.message, *parts]))
