"""The part that gradcheck and gradgradcheck share: a comparison of Jacobians turned into a verdict with findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.failures import evaluations, failing, inconclusive, not_dense, nothing_to_differentiate
from gradverify.checks.wording import (
    along,
    compared_so_far,
    differs_so_far,
    finding_of,
    if_constant,
    limit_of,
    nothing_compared,
    summary_of,
    unfinished_search,
    unnamed,
)
from gradverify.core.backward.vjps import Reuse, fails_later
from gradverify.core.decide.comparison import Comparison, Entries
from gradverify.core.decide.context import Reconsider
from gradverify.core.decide.verdict import ACCEPTED, WRONG, Code
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.forward.sampler import is_double
from gradverify.core.jacobians import Investigation, investigate
from gradverify.core.model.coordinates import blocks
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record
from gradverify.core.strategy.random_sketch import UnfinishedSearch, UnnamedError
from gradverify.deadline import OutOfTime, keeping
from gradverify.evidence import Diagnose, Diagnosis, JacobianPair, LargeBlock, evidence_of, jacobian_pair, undiagnosed
from gradverify.nested import Named
from gradverify.result import CheckResult, ElementVerdict, Finding, Method, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A check and its options."""

    check: str
    series: int  # first code: 100 or 200
    settings: Settings
    reconsider: Reconsider  # revises verdicts
    diagnose: Diagnose  # names the cause of a wrong block


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A result and the comparison it is based on."""

    result: CheckResult
    found: Investigation | None  # None if sums are wrong and no entry could be named


def judge(question: Question, repeatable: Repeatable) -> Judgement:
    """Compare claimed and measured Jacobian of the problem; raises EvaluationError if user code does.

    Raises OutOfTime with the verdicts that were reached as `found`, if any entry was judged.
    """
    check, series, problem = question.check, question.series, repeatable.problem
    try:
        found = investigate(repeatable, question.settings, question.reconsider)
    except UnnamedError as error:
        return Judgement(result=inconclusive(check, problem, f"GV{series + 4}", str(error)), found=None)
    except UnfinishedSearch as end:
        end.found = _unfinished(question, problem, end)
        raise
    result = _result_of(question, problem, found)
    sampled = found.sampled
    if result.entries and (sampled.backward_eps or sampled.problem.is_widened):
        result = replace(result, message=f"{result.message}; {_sampled_as(found)}")
    return Judgement(result=result, found=found)


def _sampled_as(found: Investigation) -> str:
    """Return a clause on the forward that was sampled, which is not the user's own."""
    is_narrow = found.backward.problem.eps > found.sampled.problem.eps
    other = "the same numbers in float64" if is_narrow else "the same code without its casts to lower precision"
    if found.backward.problem.is_widened:
        return f"differences and gradients are those of {other}"
    both = found.measured.backward_in_float64 is not None
    agrees = ", and so is backward where its own dtype gives the same up to rounding" if both else ""
    return f"differences are those of {other}{agrees}"


def _unfinished(question: Question, problem: Problem, end: UnfinishedSearch) -> CheckResult:
    """Return an inconclusive result: random sums also disagree if a correct function has a kink."""
    inputs = blocks(Named(name=primal.name, tensor=primal.tensor) for primal in problem.primals)
    result = inconclusive(question.check, problem, f"GV{question.series + 4}", unfinished_search(end.columns, inputs))
    return replace(result, method=Method.PROBED, entries=end.entries)


def _result_of(question: Question, problem: Problem, found: Investigation) -> CheckResult:
    comparison = found.comparison
    if not comparison.entries:
        return _without_entries(question, problem, found)
    jacobian = jacobian_pair(found) if comparison.counts[Code.MISMATCH] else None
    groups = [group for group in comparison.groups if group.code is not Code.UNFINISHED or differs_so_far(group)]
    pairs = sorted(((_finding(question, found, group), group) for group in groups), key=_weight)
    blocks_without_entries = tuple(unnamed(of, wrt, question.series) for of, wrt in comparison.blocks_without_entry)
    verdict = _verdict(comparison)
    result = CheckResult(
        check=question.check,
        verdict=verdict,
        message=f"{_message(comparison, verdict)}{_unused(question, found, verdict)}{_not_judged(problem, verdict)}",
        method=found.method,
        entries=comparison.entries,
        mismatched=comparison.wrong,
        kinks=comparison.counts[Code.KINK],
        undetermined=sum(comparison.counts[code] for code in _UNJUDGED),
        max_error=comparison.extremes.error,
        max_error_bar=comparison.extremes.bar,
        detection_limit=comparison.extremes.detection_limit,
        findings=(*(finding for finding, _ in pairs), *blocks_without_entries),
    )
    if comparison.counts[Code.UNFINISHED]:
        assert problem.deadline is not None
        kept = None if _is_worn(found) else result
        raise OutOfTime(problem.deadline, kept, compared_so_far(comparison, found.sampled))
    with keeping_unless_worn(found, result):
        findings = tuple(_with_causes(question, found, jacobian, pairs))
    return replace(result, findings=(*findings, *blocks_without_entries), evaluations=evaluations(problem))


def _without_entries(question: Question, problem: Problem, found: Investigation) -> CheckResult:
    """Return a fail if backward returns anything but 0 for outputs without elements, else that nothing was compared."""
    vjp = found.backward.known_vjp[1]
    for block in found.sampled.inputs:
        wrong = (vjp[block.coordinates] != 0).nonzero()
        if len(wrong):
            place = int(wrong[0])
            index = ", ".join(map(str, block.index(place)))
            claim = f"backward says {vjp[block.coordinates][place]:g} by {block.name}[{index}]"
            text = f"{claim}, but no output has elements, and the gradient of nothing is 0"
            return failing(question.check, problem, f"GV{question.series + 1}", text)
    reason = nothing_compared(found.sampled.inputs, found.sampled.outputs)
    return inconclusive(question.check, problem, f"GV{question.series + 4}", reason)


def keeping_unless_worn(found: Investigation | None, result: CheckResult) -> AbstractContextManager[None]:
    """Keep a result if time runs out in this block, unless its graph is known to return something else by now."""
    return nullcontext() if found is not None and _is_worn(found) else keeping(result)


def _is_worn(found: Investigation) -> bool:
    """True if what the graph returned last cannot be trusted."""
    return found.backward.graph.reuse is Reuse.WORN


def is_worn_out(judged: Judgement, result: CheckResult) -> bool:
    """True if a result other than a pass comes from a graph that no longer repeats its vjps; costs a vjp."""
    return result.verdict is not Verdict.PASS and judged.found is not None and fails_later(judged.found.backward)


def on_fresh_graphs(repeatable: Repeatable) -> Repeatable:
    """Return the problem with a new graph for every vjp, the first one included; raises EvaluationError."""
    problem = replace(repeatable.problem, fresh_graphs=True)
    return replace(repeatable, problem=problem, tape=record(problem))


def seeded(found: CheckResult, problem: Problem, ready: Repeatable) -> CheckResult:
    """Add a remark that the forward draws random numbers, unless the problem itself has a seed."""
    seed = ready.problem.seed
    if problem.seed is not None or seed is None or found.method is None:
        return found
    remark = f"the forward draws random numbers; seeded with {seed} before every call"
    return replace(found, message=f"{found.message} ({remark})")


def unjudgeable(check: str, series: int, problem: Problem, tape: Tape) -> CheckResult | None:
    """Return the result for a problem with nothing to differentiate, or not densely; None if it can be judged."""
    if not problem.primals:
        return nothing_to_differentiate(check, problem, "no input is a floating or complex tensor that requires grad")
    if not tape.outputs:
        return nothing_to_differentiate(check, problem, "forward returns no floating or complex tensor")
    reason = not_dense(tape.outputs)
    return inconclusive(check, problem, f"GV{series + 4}", reason) if reason else None


_FIRST = 100  # series of first derivatives
_NO_GRADIENT = "GV102"
_CHECKED_FIRST = 1000  # values among which a non-zero one is usually found
_UNJUDGED = tuple(code for code in Code if code not in ACCEPTED | WRONG)


def _verdict(comparison: Comparison) -> Verdict:
    if comparison.wrong:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE if any(comparison.counts[code] for code in _UNJUDGED) else Verdict.PASS


def _message(comparison: Comparison, verdict: Verdict) -> str:
    text = summary_of(comparison, verdict)
    if verdict is not Verdict.PASS:
        return text
    return f"{text}{limit_of(comparison)}{'; every derivative is zero' if comparison.extremes.vacuous else ''}"


def _unused(question: Question, found: Investigation, verdict: Verdict) -> str:
    """Return `; every derivative by y is zero` if that holds for some inputs but not all, else ""."""
    vjp, inputs = found.backward.known_vjp[1], found.sampled.inputs
    if len(inputs) == 1 or verdict is not Verdict.PASS or question.series != _FIRST:
        return ""
    unused = [block.name for block in inputs if _is_zero(vjp[block.coordinates])]
    return f"; every derivative by {' and '.join(unused)} is zero" if 0 < len(unused) < len(inputs) else ""


def _not_judged(problem: Problem, verdict: Verdict) -> str:
    """Return which inputs move within a constraint only, "" if there are none or some entry did not pass."""
    names = [primal.name for primal in problem.primals if primal.project is not None]
    if not names or verdict is not Verdict.PASS:
        return ""
    if len(names) == 1:
        return f"; {names[0]} moves within its constraint only, and its gradient outside is not judged"
    return f"; {' and '.join(names)} move within their constraints only, and their gradients outside are not judged"


def _is_zero(values: Tensor) -> bool:
    return not (bool(values[:_CHECKED_FIRST].any()) or bool(values.any()))


def _finding(question: Question, found: Investigation, group: Entries) -> Finding:
    is_random = found.sampled.problem.seed is not None  # then a reference draws other numbers
    dtypes = () if is_double(found.sampled) or is_random else found.sampled.dtypes
    narrow = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
    finding = finding_of(group, question.series, missing=found.backward.missing[group.wrt.tensor], narrow=narrow)
    if group.code is Code.NOT_A_SUBGRADIENT:
        return replace(
            finding, message=f"{finding.message}: {along(group, found.comparison.wrong_directions, found.sampled)}"
        )
    if finding.code == _NO_GRADIENT and not all(found.backward.missing):  # the others still need one
        name = found.sampled.problem.primals[group.wrt.tensor].name
        return replace(finding, message=f"{finding.message}{if_constant(name)}")
    return finding


def _with_causes(
    question: Question, found: Investigation, jacobian: JacobianPair | None, pairs: Sequence[tuple[Finding, Entries]]
) -> Iterator[Finding]:
    """Yield the findings with causes; for a large Jacobian, the search for them ends after `max_evaluations` calls."""
    meter = found.sampled.problem.meter
    last = meter.forward + question.settings.max_evaluations
    for finding, group in pairs:
        within_budget = jacobian is not None or meter.forward < last
        yield _with_cause(question, found, jacobian, finding, group) if within_budget else finding


def _with_cause(
    question: Question, found: Investigation, jacobian: JacobianPair | None, finding: Finding, group: Entries
) -> Finding:
    if finding.verdict is not Verdict.FAIL or group.code is Code.NOT_A_SUBGRADIENT:
        return finding
    diagnosis = _diagnosis(question, found, jacobian, group)
    if diagnosis is None:
        return finding
    return replace(finding, cause=diagnosis.cause, message=f"{finding.message}\n{diagnosis.explanation}")


def _diagnosis(
    question: Question, found: Investigation, jacobian: JacobianPair | None, group: Entries
) -> Diagnosis | None:
    if jacobian is not None:
        return question.diagnose(evidence_of(jacobian, group.of, group.wrt))
    if question.diagnose is undiagnosed:
        return None
    sums = LargeBlock(
        of=group.of,
        wrt=group.wrt,
        measured=found.measured,
        wrong_entries=group,
        wrong_places_complete=found.method is not Method.PROBED,
        settings=question.settings,
    )
    return question.diagnose(sums)


def _weight(pair: tuple[Finding, Entries]) -> tuple[int, float]:
    """Sort key: fails first, then inconclusive findings, then accepted ones; the largest error over tolerance first."""
    finding, _ = pair
    order = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS).index(finding.verdict)
    worst = finding.elements[0]
    ratio = worst.error / worst.allowed if worst.allowed > 0 else float("inf")
    is_kink = worst.verdict is ElementVerdict.KINK
    return order, 0.0 if is_kink else -ratio
