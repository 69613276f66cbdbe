"""Is backward's own derivative consistent with backward, by inputs and by cotangents?"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.contract import second_order
from gradverify.checks.contract.build import heard, subject_for
from gradverify.checks.derivative import Judgement, Question, is_worn_out, judge, on_fresh_graphs, seeded, unjudgeable
from gradverify.checks.disagreement import beside
from gradverify.checks.failures import evaluations, failed_call, inconclusive, skipped
from gradverify.checks.gradcheck import RANDOM
from gradverify.checks.symmetry import asymmetric
from gradverify.checks.torch_gradcheck import run_gradgradcheck
from gradverify.checks.untracked import containers_seen, never_called, without_backward
from gradverify.core.decide.context import JudgingContext, Reconsider
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.nonsmooth import kinked_columns
from gradverify.core.forward.repeatable import Repeatable, steady
from gradverify.core.forward.sampler import sampler
from gradverify.core.model.deadline import keeping
from gradverify.core.model.problem import Problem
from gradverify.core.model.second_order import once_differentiable, vjp_problem
from gradverify.core.model.tape import Rejected, record
from gradverify.core.whole.evidence import Diagnose, undiagnosed
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Verdict

NAME = "gradgradcheck"
SERIES = 200  # of its codes


def run(problem: Problem, settings: Settings, diagnose: Diagnose = undiagnosed) -> CheckResult:
    """Compare every entry of the vjp's Jacobian; torch's gradgradcheck runs beside it. Raises EvaluationError."""
    with containers_seen() as seen:
        tape = record(problem)
    nothing = never_called(NAME, problem, tape, seen) or unjudgeable(NAME, SERIES, problem, tape)
    nothing = nothing or without_backward(NAME, problem, tape)
    if nothing is not None:
        return nothing
    ready = steady(problem, tape, settings.seed)
    if ready is None:
        return inconclusive(NAME, problem, f"GV{SERIES + 4}", RANDOM)
    try:
        second = _second(ready, settings)
    except Rejected:
        return skipped(
            NAME, problem, "autograd rejects what backward returned, see gradcheck: there is no vjp to differentiate"
        )
    except EvaluationError as error:
        return beside(_failed(problem, error), run_gradgradcheck(ready.problem, settings, ready.tape))
    if once_differentiable(second.tape):
        return skipped(NAME, problem, "backward is declared @once_differentiable: it has no derivative of its own")
    try:
        reconsider = _kinks_of(ready, settings)
        question = Question(check=NAME, series=SERIES, settings=settings, reconsider=reconsider, diagnose=diagnose)
        judged = judge(question, second)
        with keeping(judged.result):
            worn = is_worn_out(judged, judged.result)
        if worn:  # the first result is not kept if time runs out here
            judged = _second_look(question, second, judged)
        with keeping(judged.result):
            found = seeded(_with_remarks(judged, ready, settings.seed), problem, ready)
            found = replace(found, evaluations=evaluations(second.problem))
            found = _with_reasons(found, problem, settings)
    except EvaluationError as error:
        found = _failed(problem, error)
    return beside(found, run_gradgradcheck(ready.problem, settings, ready.tape))


def _second_look(question: Question, second: Repeatable, first: Judgement) -> Judgement:
    """Judge again with a new graph for every vjp; where user code raises then, keep the first judgement."""
    try:
        return judge(question, on_fresh_graphs(second))
    except EvaluationError:
        return first


def _with_remarks(judgement: Judgement, first: Repeatable, seed: int) -> CheckResult:
    """Say that backward is no gradient, which fails nothing here: the first derivative is a question of its own.

    Where a kink or something else that cannot be judged is about, a Hessian need not be symmetric.
    """
    result, second = judgement.result, judgement.found
    if second is None or not result.entries or result.kinks or result.undetermined:
        return result
    remarks = tuple(asymmetric(first, second, seed))
    if not remarks:
        return result
    message = f"{result.message}; backward is the gradient of no function"
    return replace(result, findings=(*result.findings, *remarks), message=message)


def _with_reasons(result: CheckResult, problem: Problem, settings: Settings) -> CheckResult:
    """Put first why backward's own derivative is wrong, if that can be told."""
    if result.verdict is not Verdict.FAIL:
        return result
    try:
        subject = subject_for(problem, settings)
        reasons = () if isinstance(subject, str) else tuple(second_order.findings(heard(subject)))
    except EvaluationError:
        return result
    reasons = tuple(replace(reason, verdict=Verdict.FAIL) for reason in reasons)
    return replace(result, findings=(*reasons, *result.findings), evaluations=evaluations(problem))


def _second(first: Repeatable, settings: Settings) -> Repeatable:
    """Return the vjp as a problem of its own, which repeats as its forward does."""
    problem = vjp_problem(first.problem, first.tape, settings.seed)
    tape = record(problem)
    return Repeatable(problem=problem, tape=tape, sampled=sampler(problem, tape))


def _failed(problem: Problem, error: EvaluationError) -> CheckResult:
    """Return the result where backward raises: nothing is wrong where, by its own word, it cannot be differentiated."""
    original, said = error.original, str(error.original)
    torchs = isinstance(original, RuntimeError) and "is not implemented" in said
    if error.stage == "backward" and (torchs or isinstance(original, NotImplementedError)):
        reason = said.splitlines()[0] if said else "it raises NotImplementedError"
        return skipped(NAME, problem, f"backward has no derivative of its own: {reason}")
    return failed_call(NAME, problem, error)


def _kinks_of(first: Repeatable, settings: Settings) -> Reconsider:
    """Where the forward has a kink, the vjp jumps: such a jump is the kink's, not a question of its own."""

    def reconsider(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
        close = judged.kinked & (judged.code == Code.UNDETERMINED)
        jumps = close | (judged.code == Code.JUMP)
        if not bool(jumps.any()):
            return judged
        column_of = context.column_groups.column_of[chosen]
        columns = torch.unique(column_of[jumps])
        kinked = columns[kinked_columns(first.sampled, columns, settings.seed)]
        number = torch.isfinite(context.claimed[chosen])  # what is no number lies between no slopes
        rules = [
            (jumps & torch.isin(column_of, kinked), Reason.KINK_OF_FORWARD),
            (jumps & ~close & ~number, Reason.DIFFERS),
        ]
        return decide(judged, rules)

    return reconsider
