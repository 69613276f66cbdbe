"""What a loss asks of backward beyond the Jacobian: sums, one output, an unchanged cotangent, one answer throughout."""

from __future__ import annotations

from dataclasses import replace

from gradverify.case import Settings
from gradverify.checks.derivative import (
    Judgement,
    Question,
    is_worn_out,
    judge,
    keeping_unless_worn,
    on_fresh_graphs,
)
from gradverify.checks.failures import evaluations
from gradverify.checks.first_answer import wrong_at_first
from gradverify.checks.overwritten import overwrites
from gradverify.checks.single_output import wrong_if_alone
from gradverify.checks.summed_outputs import wrong_if_summed
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.model.problem import Problem
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Verdict

_AFFINE, _DETACHED = "missing-cotangent", "detached"  # cause of non-linear gradients, and the one they look like
_GROSS = 0.03  # relative to the gradient: beside wrong entries, a smaller deviation from linearity is not reported


def judge_as_used(question: Question, ready: Repeatable) -> tuple[Judgement, Repeatable]:
    """Return the judgement with these fails, and the problem that was judged; raises EvaluationError.

    If one graph no longer repeats its vjps, a new one is recorded for each. The first judgement stays if that raises.
    """
    judged = judge(question, ready)
    with keeping_unless_worn(judged.found, judged.result):
        first = replace(judged, result=_as_used(judged, ready, question.settings))
        worn = is_worn_out(judged, first.result)
    if not worn:
        return first, ready
    try:  # the first result is not kept if time runs out here
        again = on_fresh_graphs(ready)
        judged = judge(question, again)
        return replace(judged, result=_as_used(judged, again, question.settings)), again
    except EvaluationError:
        return first, ready


def _as_used(judged: Judgement, ready: Repeatable, settings: Settings) -> CheckResult:
    """Add fails for a backward that is right for the Jacobian, but not for one output alone, for sums or at first."""
    result = judged.result
    if result.verdict is Verdict.FAIL and judged.found is not None:
        return _beside_sums(result, tuple(wrong_if_summed(judged.found, _GROSS)), ready.problem)
    if result.verdict not in (Verdict.PASS, Verdict.INCONCLUSIVE):
        return result
    wrong = (*overwrites(judged.found), *wrong_at_first(judged.found), *wrong_if_alone(ready, settings.seed))
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
