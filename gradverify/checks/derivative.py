"""What gradcheck and gradgradcheck share: a comparison of Jacobians turned into a verdict with findings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.excerpts import diagnosed_in_excerpts
from gradverify.checks.failures import evaluations, inconclusive, not_dense, nothing_to_differentiate
from gradverify.checks.wording import along, finding_of, summary_of
from gradverify.core.function.analytic import is_worn
from gradverify.core.function.problem import Problem
from gradverify.core.function.steady import Steady
from gradverify.core.function.tape import Tape
from gradverify.core.jacobians import Investigation, evidence, investigate, whole
from gradverify.core.judging.compare import ACCEPTED, WRONG, Code
from gradverify.core.judging.entries import Entries
from gradverify.core.judging.ground import Reconsider
from gradverify.core.judging.tally import Comparison
from gradverify.core.ways.probed import UnnamedError
from gradverify.core.whole.evidence import Diagnose, Diagnosis, Whole, undiagnosed
from gradverify.core.whole.sums import Sums
from gradverify.result import CheckResult, ElementVerdict, Finding, Method, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which check asks, and with what."""

    check: str
    series: int  # of the codes: 100 or 200
    settings: Settings
    reconsider: Reconsider  # a second look at verdicts
    diagnose: Diagnose  # names the cause of a wrong block


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A result, and the comparison that it tells of."""

    result: CheckResult
    found: Investigation | None  # None where sums are wrong and no entry could be named


def judge(question: Question, steady: Steady) -> Judgement:
    """Compare claimed and measured Jacobian of the problem; raises EvaluationError when user code does."""
    check, series, problem = question.check, question.series, steady.problem
    try:
        found = investigate(steady, question.settings, question.reconsider)
    except UnnamedError as error:
        return Judgement(result=inconclusive(check, problem, f"GV{series + 4}", str(error)), found=None)
    result = _told(question, problem, found)
    if found.sampled.rounds_to is not None and result.entries:
        narrow = str(found.sampled.rounds_to).removeprefix("torch.")
        result = replace(result, message=f"{result.message}; the forward rounds its inputs, and is judged in {narrow}")
    elif found.sampled.coarse and result.entries:
        result = replace(result, message=f"{result.message}; differences are those of the same numbers in float64")
    return Judgement(result=result, found=found)


def _told(question: Question, problem: Problem, found: Investigation) -> CheckResult:
    comparison = found.comparison
    everything = whole(found) if comparison.counts[Code.MISMATCH] else None
    findings = sorted((_finding(question, found, everything, group) for group in comparison.groups), key=_weight)
    verdict = _verdict(comparison)
    return CheckResult(
        check=question.check,
        verdict=verdict,
        message=f"{_message(comparison, verdict)}{_unused(question, found, verdict)}",
        method=found.method,
        entries=comparison.entries,
        mismatched=comparison.wrong,
        kinks=comparison.counts[Code.KINK],
        undetermined=sum(comparison.counts[code] for code in _UNJUDGED),
        max_error=comparison.max_error,
        max_error_bar=comparison.max_error_bar,
        detection_limit=comparison.detection_limit,
        evaluations=evaluations(problem),
        findings=tuple(findings),
    )


def is_worn_out(judged: Judgement, result: CheckResult) -> bool:
    """Return True if a result that is no pass rests on a graph that changed its answers; costs a vjp."""
    return result.verdict is not Verdict.PASS and judged.found is not None and is_worn(judged.found.backward)


def on_fresh_graphs(steady: Steady) -> Steady:
    """Return the problem with a new graph for every vjp."""
    return replace(steady, problem=replace(steady.problem, fresh_graphs=True))


def seeded(found: CheckResult, problem: Problem, ready: Steady) -> CheckResult:
    """Say that a forward draws random numbers, where nobody had said so before."""
    seed = ready.problem.seed
    if problem.seed is not None or seed is None or found.method is None:
        return found
    remark = f"the forward draws random numbers; seeded with {seed} before every call"
    return replace(found, message=f"{found.message} ({remark})")


def unjudgeable(check: str, series: int, problem: Problem, tape: Tape) -> CheckResult | None:
    """Return the result for a problem with nothing to differentiate, or not densely; None where it can be judged."""
    if not problem.primals:
        return nothing_to_differentiate(check, problem, "no input is a floating or complex tensor that requires grad")
    if not tape.outputs:
        return nothing_to_differentiate(check, problem, "forward returns no floating or complex tensor")
    reason = not_dense(tape.outputs)
    return inconclusive(check, problem, f"GV{series + 4}", reason) if reason else None


_FIRST = 100  # the series of first derivatives
_GLANCE = 1000  # values among which one that is not zero is found, if any is
_BLUNT = 1e-2  # a detection limit above this is worth a word
_UNJUDGED = tuple(code for code in Code if code not in ACCEPTED | WRONG)


def _verdict(comparison: Comparison) -> Verdict:
    if comparison.wrong:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE if any(comparison.counts[code] for code in _UNJUDGED) else Verdict.PASS


def _message(comparison: Comparison, verdict: Verdict) -> str:
    if comparison.entries == 0:
        return "no entries: an input or output has no elements"
    text = summary_of(comparison, verdict)
    limit = comparison.detection_limit or 0.0
    if verdict is Verdict.PASS and limit >= 1.0 and not comparison.sums:
        text = f"{text}; some are so small that differences cannot tell them from zero"
    elif verdict is Verdict.PASS and limit > _BLUNT:
        text = f"{text}; in some, errors up to {limit:.0e} of the entry would not show"
    return f"{text}; every derivative is zero" if comparison.vacuous and verdict is Verdict.PASS else text


def _unused(question: Question, found: Investigation, verdict: Verdict) -> str:
    """Return `; every derivative by y is zero`, where that is so of some inputs: who passes them may not expect it."""
    answer, inputs = found.backward.heard[1], found.sampled.inputs
    if len(inputs) == 1 or verdict is not Verdict.PASS or question.series != _FIRST:
        return ""
    silent = [block.name for block in inputs if _is_zero(answer[block.coordinates])]
    return f"; every derivative by {' and '.join(silent)} is zero" if 0 < len(silent) < len(inputs) else ""


def _is_zero(values: Tensor) -> bool:
    return not (bool(values[:_GLANCE].any()) or bool(values.any()))


def _finding(question: Question, found: Investigation, everything: Whole | None, group: Entries) -> Finding:
    finding = finding_of(group, question.series, missing=found.backward.missing[group.wrt.tensor])
    if finding.verdict is not Verdict.FAIL:
        return finding
    if group.code is Code.ASTRAY:
        return replace(finding, message=f"{finding.message}: {along(group, found.comparison.ties, found.sampled)}")
    diagnosis = _diagnosis(question, found, everything, group)
    if diagnosis is None:
        return finding
    return replace(finding, cause=diagnosis.cause, message=f"{finding.message}\n{diagnosis.explanation}")


def _diagnosis(question: Question, found: Investigation, everything: Whole | None, group: Entries) -> Diagnosis | None:
    if everything is not None:
        return question.diagnose(evidence(found, everything, group.of, group.wrt))
    if question.diagnose is undiagnosed:
        return None
    sums = Sums(
        of=group.of,
        wrt=group.wrt,
        ground=found.ground,
        found=group,
        all_places=found.method is not Method.PROBED,
        seed=question.settings.seed,
    )
    return question.diagnose(sums) or diagnosed_in_excerpts(sums, question.settings, question.diagnose)


def _weight(finding: Finding) -> tuple[int, float]:
    """Sort key: fails first, then what could not be judged, then the accepted; the worst excess first."""
    order = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS).index(finding.verdict)
    worst = finding.elements[0]
    ratio = worst.error / worst.allowed if worst.allowed > 0 else float("inf")
    is_kink = worst.verdict is ElementVerdict.KINK
    return order, 0.0 if is_kink else -ratio
