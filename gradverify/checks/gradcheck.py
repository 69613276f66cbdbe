"""The check that backward is the derivative of forward, in every entry of the Jacobian."""

from __future__ import annotations

from dataclasses import replace

from gradverify.case import Settings
from gradverify.checks.as_used import judge_as_used
from gradverify.checks.cut_off import cut_off
from gradverify.checks.derivative import (
    Question,
    seeded,
    unjudgeable,
)
from gradverify.checks.disagreement import with_torch_outcome
from gradverify.checks.failures import evaluations, failed_call, inconclusive
from gradverify.checks.left_out import left_out
from gradverify.checks.torch_gradcheck import run_gradcheck
from gradverify.checks.untracked import containers_seen, never_called, with_reasons
from gradverify.core.decide.context import unchanged
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.deadline import keeping
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnose, undiagnosed
from gradverify.result import CheckResult, Finding

NAME = "gradcheck"
SERIES = 100  # of its codes
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
        judged, ready = judge_as_used(question, ready)
        found = judged.result
        with keeping(found):
            found = replace(found, evaluations=evaluations(ready.problem))
            found = with_reasons(found, ready.problem, tape, seen)
            found = seeded(_with_remarks(found, tuple(cut_off(ready)), left_out(ready.tape)), problem, ready)
    except EvaluationError as error:
        found = failed_call(NAME, ready.problem, error)
    return with_torch_outcome(found, run_gradcheck(ready.problem, settings, ready.tape))


def _with_remarks(result: CheckResult, remarks: tuple[Finding, ...], beside: str) -> CheckResult:
    """Add remarks, which do not change the verdict."""
    parts = [f"no gradient through {', '.join(remark.of or '' for remark in remarks)}"] if remarks else []
    parts += [beside] if beside else []
    if not parts:
        return result
    return replace(result, findings=(*result.findings, *remarks), message="; ".join([result.message, *parts]))
