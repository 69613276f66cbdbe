"""The check that backward's own derivative is consistent with backward, by inputs and by cotangents."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.as_used import judge_as_used
from gradverify.checks.called_functions import broken_promises, functions_called
from gradverify.checks.constant_tensors import wrong_by_constant_cotangents, wrong_by_constant_inputs
from gradverify.checks.contract import second_order
from gradverify.checks.contract.build import subject_for, with_measured_noise
from gradverify.checks.derivative import Judgement, Question, seeded, unjudgeable
from gradverify.checks.disagreement import with_torch_outcome
from gradverify.checks.failures import evaluations, failed_call, inconclusive, skipped
from gradverify.checks.gradcheck import RANDOM
from gradverify.checks.symmetry import asymmetric
from gradverify.checks.torch_gradcheck import run_gradgradcheck
from gradverify.checks.untracked import containers_seen, never_called, without_backward
from gradverify.core.decide.backward_rounding import problem_at
from gradverify.core.decide.context import JudgingContext, Reconsider, of_column_groups
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.estimate.nonsmooth import classify_ladder
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate, difference_noise, joined
from gradverify.core.estimate.smoothness import stair_height
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import HALVINGS, coarse_steps, fine_steps, tableau
from gradverify.core.forward.noise import measure
from gradverify.core.forward.repeatable import Repeatable, made_repeatable
from gradverify.core.forward.sampler import Sampler, first_cotangent, sampler
from gradverify.core.model.limits import chunks
from gradverify.core.model.magnitudes import scales
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Rejected, has_once_differentiable, record, vjp, vjp_problem
from gradverify.deadline import keeping
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnose, undiagnosed
from gradverify.result import CheckResult, Verdict

NAME = "gradgradcheck"
SERIES = 200  # of its codes
_UNDECLARED = "; only with create_graph=True: make backward differentiable, or mark it @once_differentiable"
_OF_BACKWARD = "; in the derivative of backward"
_OF_SLOPE = 4.0  # times the noise of a central difference: noise of a slope between one step and a quarter of it


def run(problem: Problem, settings: Settings, diagnose: Diagnose = undiagnosed) -> CheckResult:
    """Compare every entry of the vjp's Jacobian; torch's gradgradcheck runs beside it. Raises EvaluationError."""
    with containers_seen() as seen:
        tape = record(problem)
    early = never_called(NAME, problem, tape, seen) or unjudgeable(NAME, SERIES, problem, tape)
    early = early or without_backward(NAME, problem, tape)
    if early is not None:
        return early
    ready = made_repeatable(problem, tape, settings.seed)
    if ready is None:
        return inconclusive(NAME, problem, f"GV{SERIES + 4}", RANDOM)
    try:
        vjps = vjp_problem(ready.problem, ready.tape, settings.seed)
        tape_of_vjps = record(vjps)
        if has_once_differentiable([output.tensor for output in tape_of_vjps.outputs]):
            return skipped(NAME, problem, "backward is declared @once_differentiable: it has no derivative of its own")
        # It repeats because its forward does.
        second = Repeatable(problem=vjps, tape=tape_of_vjps, sampled=sampler(vjps, tape_of_vjps))
    except Rejected:
        return skipped(
            NAME, problem, "autograd rejects what backward returned, see gradcheck: there is no vjp to differentiate"
        )
    except EvaluationError as error:
        return with_torch_outcome(
            _failed(ready, problem, error), run_gradgradcheck(ready.problem, settings, ready.tape)
        )
    try:
        reconsider = _kinks_of(ready, settings)
        question = Question(check=NAME, series=SERIES, settings=settings, reconsider=reconsider, diagnose=diagnose)
        judged, second = judge_as_used(question, second)
        with keeping(judged.result):
            judged = _at_other_cotangents(question, judged, second)
            judged = _with_called_functions(judged, ready, second, settings)
            found = seeded(_with_remarks(judged, ready, settings.seed), problem, ready)
            found = replace(found, evaluations=evaluations(second.problem))
            found = _with_reasons(found, problem, settings)
    except EvaluationError as error:
        found = _failed(ready, problem, error, is_second=True)
    return with_torch_outcome(found, run_gradgradcheck(ready.problem, settings, ready.tape))


def _at_other_cotangents(question: Question, judged: Judgement, second: Repeatable) -> Judgement:
    """Return the judgement after a look at cotangents of the opposite sign that are constants; costs a vjp.

    The vjp is linear in its cotangents, so its derivative by the inputs changes sign with them. If it does not, it may
    be wrong for one of the signs, or where the cotangents need no gradient, as those of a gradient penalty.
    """
    if judged.found is None or judged.result.verdict is not Verdict.PASS:
        return judged
    first, point = first_cotangent(second.sampled), second.sampled.point.clone()
    point[first:] *= -1.0
    opposite = problem_at(second.problem, point)
    if wrong_by_constant_cotangents(judged.found, opposite, -1.0) is None:
        return judged
    tape = record(opposite)
    other, _ = judge_as_used(question, Repeatable(problem=opposite, tape=tape, sampled=sampler(opposite, tape)))
    if other.result.verdict is not Verdict.PASS:
        message = f"{other.result.message}; with cotangents of the opposite sign, while it agrees with the first ones"
        return replace(other, result=replace(other.result, message=message))
    found = wrong_by_constant_cotangents(judged.found, second.problem, 1.0)
    if found is None:
        return judged
    findings = (found, *judged.result.findings)
    return replace(
        judged, result=replace(judged.result, verdict=Verdict.FAIL, message=found.message, findings=findings)
    )


def _with_called_functions(judged: Judgement, first: Repeatable, second: Repeatable, settings: Settings) -> Judgement:
    """Add fails for what the Functions that backward calls do wrong beyond their Jacobians.

    Costs nothing if it calls none.
    """
    result = judged.result
    called = functions_called(first, second)
    if judged.found is None or result.verdict is not Verdict.PASS or not called:
        return judged
    failures = (
        *wrong_by_constant_inputs(judged.found, first.problem, settings.seed),
        *broken_promises(second, called, settings),
    )
    if not failures:
        return judged
    findings = (*failures, *result.findings)
    return replace(judged, result=replace(result, verdict=Verdict.FAIL, message=failures[0].message, findings=findings))


def _with_remarks(judgement: Judgement, first: Repeatable, seed: int) -> CheckResult:
    """Add a remark if backward is not a gradient, which fails the case only if gradcheck passes; see `run_checks`.

    Near a kink, or anything else that cannot be judged, a Hessian need not be symmetric. Beside a wrong second
    derivative it is not looked for: that has to be mended first.
    """
    result, second = judgement.result, judgement.found
    if second is None or result.verdict is Verdict.FAIL or not result.entries or result.kinks or result.undetermined:
        return result
    remarks = tuple(asymmetric(first, second, seed))
    if not remarks:
        return result
    message = f"{result.message}; backward is the gradient of no function"
    return replace(result, findings=(*result.findings, *remarks), message=message)


def _with_reasons(result: CheckResult, problem: Problem, settings: Settings) -> CheckResult:
    """Put the reasons why backward's own derivative is wrong first, if any are found."""
    if result.verdict is not Verdict.FAIL:
        return result
    try:
        subject = subject_for(problem, settings)
        reasons = () if isinstance(subject, str) else tuple(second_order.findings(with_measured_noise(subject)))
    except EvaluationError:
        return result
    reasons = tuple(replace(reason, verdict=Verdict.FAIL) for reason in reasons)
    return replace(result, findings=(*reasons, *result.findings), evaluations=evaluations(problem))


def _failed(first: Repeatable, problem: Problem, error: EvaluationError, *, is_second: bool = False) -> CheckResult:
    """Return the result if user code raises: a skip if backward declares that it cannot be differentiated.

    If `is_second`, what raised is the derivative of backward, or what it calls, and not backward itself.
    """
    original, text = error.original, str(error.original)
    from_torch = isinstance(original, RuntimeError) and "is not implemented" in text
    if error.stage == "backward" and (from_torch or isinstance(original, NotImplementedError)):
        reason = text.splitlines()[0] if text else "it raises NotImplementedError"
        return skipped(NAME, problem, f"backward has no derivative of its own: {reason}")
    is_undeclared = error.stage == "backward" and not is_second and _runs_without_graph(first)
    hint = _UNDECLARED if is_undeclared else _OF_BACKWARD if error.stage == "backward" and is_second else ""
    return failed_call(NAME, problem, error, hint)


def _runs_without_graph(first: Repeatable) -> bool:
    """Return True if backward does not raise where it is not differentiated."""
    try:
        with torch.no_grad():
            vjp(first.problem, first.tape, [torch.ones_like(output.tensor) for output in first.tape.outputs])
    except EvaluationError:
        return False
    return True


def _kinks_of(first: Repeatable, settings: Settings) -> Reconsider:
    """Return a function that turns jumps of the vjp into kinks where the forward has a kink.

    The vjp jumps at a kink of the forward; this is not an error of the second derivative. A claim far from the slopes
    of the vjp on both sides of the jump may be one: it is left undetermined, since at ties there are further pieces.
    """

    def reconsider(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
        close = judged.kinked & (judged.code == Code.UNDETERMINED)
        jumps = close | (judged.code == Code.JUMP)
        if not bool(jumps.any()):
            return judged
        column_of = context.column_groups.column_of[chosen]
        columns = torch.unique(column_of[jumps])
        kinked = columns[_kinked_columns(first.sampled, columns, settings.seed)]
        of_forward = jumps & torch.isin(column_of, kinked)
        finite = torch.isfinite(context.claimed[chosen])  # NaN or inf does not lie between two slopes
        rules = [
            (of_forward, Reason.KINK_OF_FORWARD),
            (of_forward & _unlike_both_sides(context, chosen, of_forward), Reason.UNLIKE_BOTH_SIDES),
            (jumps & ~close & ~finite, Reason.DIFFERS),
        ]
        return decide(judged, rules)

    return reconsider


def _unlike_both_sides(context: JudgingContext, chosen: Tensor, entries: Tensor) -> Tensor:
    """Mask of `entries` (C, m) whose claim is clearly outside the slopes of the vjp on the two sides of the point.

    The slopes are those between two samples on the same side, so that a jump at the point is in none of them. Where
    they are not known, no claim is outside.
    """
    unlike, steps = torch.zeros_like(entries), coarse_steps(context.lengths)
    steps = replace(steps, factors=steps.factors[HALVINGS:])
    rows = entries.any(dim=1).nonzero().squeeze(1)
    for part in chunks(rows, 2 * len(steps.factors) * context.numbers_per_sample):
        samples = sample(context.sampled, context.column_groups, chosen[part], steps)
        noise = _OF_SLOPE * difference_noise(context.noise, samples)[:, :-1]
        left = _slope_beside(samples.minus, -samples.back, noise)
        right = _slope_beside(samples.plus, samples.forth, noise)
        claimed, allowance = context.claimed[chosen[part]], of_column_groups(context.allowance, chosen[part])
        slack = BAR_FACTOR * (left.bar + right.bar) + allowance.atol + allowance.rtol * claimed.abs()
        low, high = torch.minimum(left.value, right.value) - slack, torch.maximum(left.value, right.value) + slack
        unlike[part] = (claimed < low) | (claimed > high)
    return unlike


def _slope_beside(values: Tensor, distance: Tensor, noise: Tensor) -> Estimate:
    """Return the derivative (C, m) on one side of the point, from outputs (C, K, m) at distances (C, K, 1 or m)."""
    slopes = values.diff(dim=1) / distance.diff(dim=1)
    return tableau(slopes, noise, torch.isfinite(slopes), distance[:, :-1].abs())


def _kinked_columns(sampled: Sampler, columns: Tensor, seed: int) -> Tensor:
    """Mask of `columns` (C,) in which some output has a kink at the point or close to it.

    False for columns beyond the coordinates of the problem's own primals (cotangents).
    """
    lengths = scales(sampled.point, sampled.inputs)
    noise = measure(sampled, lengths, seed)
    column_groups = single_columns(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    kinked = torch.zeros(len(columns), dtype=torch.bool, device=columns.device)
    for place, column in enumerate(columns.tolist()):
        if column < sampled.point.numel():
            own = torch.tensor([column], device=columns.device)
            coarse, fine = coarse_steps(lengths), fine_steps(lengths, own)
            ladder = joined(*(sample(sampled, column_groups, own, steps) for steps in (coarse, fine)))
            local = classify_ladder(sampled, noise, ladder, lengths.own[own].unsqueeze(1), stair_height(ladder))
            kinked[place] = (local.kink | local.close_kink).any()
    return kinked
