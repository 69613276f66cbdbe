"""Does backward keep the promises that autograd relies on? No step, no differences: the answers must fit each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from gradverify.case import Settings
from gradverify.checks import batching, forward_ad
from gradverify.checks.contract import (
    aliased,
    backward_writes,
    cotangent_layouts,
    cotangents_kept,
    forward_writes,
    input_layouts,
    kept_alive,
    linearity,
    needs,
    precision,
    repeats,
    returned,
    second_order,
    sizes,
    state,
    undefined,
    uninitialised,
)
from gradverify.checks.contract.casts import Casts, casts_of
from gradverify.checks.contract.noise import loudness, with_noise
from gradverify.checks.contract.repeats import Steady, spread_of, spreads, steady
from gradverify.checks.contract.returned import refusals
from gradverify.checks.contract.subject import Subject, new_graph, subject_of
from gradverify.checks.contract.wording import raised
from gradverify.checks.failures import evaluations, not_dense, nothing_to_differentiate, skipped
from gradverify.core.function.analytic import Reuse
from gradverify.core.function.problem import Problem
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "contract"
Question = Callable[[Subject], Iterator[Finding]]

# Questions that one graph can answer, and those that need a forward which repeats.
ON_ONE_GRAPH: tuple[Question, ...] = (
    linearity.zero_for_zero,
    linearity.one_output_at_a_time,
    linearity.combination,
    cotangents_kept.findings,
    cotangent_layouts.findings,
    undefined.findings,
    returned.findings,
)
ON_MANY_GRAPHS: tuple[Question, ...] = (
    forward_writes.findings,
    backward_writes.findings,
    input_layouts.findings,
    needs.findings,
    aliased.findings,
    state.findings,
    uninitialised.findings,
    kept_alive.findings,
    sizes.findings,
    second_order.findings,
)
# Codes that compare two answers, which says nothing where answers vary by themselves.
_COMPARED = ("GV301", "GV303", "GV304", "GV305", "GV307", "GV308", "GV403", "GV404", "GV405", "GV408", "GV411")
# What a finding explains: these are not said a second time in other words.
_EXPLAINS: dict[str, tuple[str, ...]] = {
    "GV301": ("GV501",),
    "GV302": ("GV501",),
    "GV303": ("GV301", "GV501"),
    "GV304": ("GV301", "GV501"),
    "GV305": ("GV301", "GV501"),
    "GV306": ("GV307", "GV501"),
    "GV310": ("GV601", "GV501"),
    "GV402": ("GV405", "GV411"),
    "GV407": _COMPARED,
    "GV408": ("GV307", "GV308", "GV403", "GV404", "GV405", "GV411"),
    "GV409": (*_COMPARED, "GV302", "GV407"),
    "GV501": ("GV502",),
}


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Ask every question about backward; raises EvaluationError where it cannot be called at all."""
    if not problem.primals:
        reason = "no input is a floating or complex tensor that requires grad"
        return nothing_to_differentiate(NAME, problem, reason)
    reason = not_dense(problem, ())
    if reason:
        return skipped(NAME, problem, reason)
    ready = steady(problem, settings)
    if any(finding.verdict is Verdict.FAIL for finding in ready.findings):
        return _result(ready.problem, ready.findings, "")
    if not any(output.tensor.requires_grad for output in ready.tape.outputs):
        return skipped(NAME, problem, "no output has a graph: there is no backward to question")
    refused = refusals(ready.problem, ready.tape)
    if refused:
        return _result(ready.problem, refused, "")
    subject = subject_of(ready.problem, settings, ready.tape, ready.reuse)
    return _result(ready.problem, _told_once([*ready.findings, *_asked(subject, ready)]), _left_out(subject))


def _asked(subject: Subject, ready: Steady) -> tuple[Finding, ...]:
    """Ask everything the cheap way first, and carefully where that leaves a doubt."""
    if ready.reuse is Reuse.SHARED:
        return tuple(_answers(subject, ON_ONE_GRAPH))
    casts = casts_of(subject)
    found = None if casts.seen else _cheaply(subject)
    return tuple(_carefully(subject, casts)) if found is None else found


def _cheaply(subject: Subject) -> tuple[Finding, ...] | None:
    """Ask as if rounding left nothing, and one graph for all questions that allow it; None where something differs.

    What differs may be noise, or a graph that serves one backward only, or be wrong. What agrees so, agrees.
    """
    shared = replace(subject, reuse=Reuse.SHARED, tape=new_graph(subject))
    try:
        again = spreads(shared)
    except EvaluationError:
        return None
    spread = spread_of(subject, again)
    found: list[Finding] = []
    for finding in chain(
        repeats.findings(subject, again),
        _answers(replace(shared, noise=spread), ON_ONE_GRAPH),
        _on_many_graphs(replace(subject, noise=spread)),
    ):
        if finding.verdict is not Verdict.PASS:
            return None
        found.append(finding)
    return tuple(found)


def _carefully(subject: Subject, casts: Casts) -> Iterator[Finding]:
    """Ask every question on a graph of its own, with the noise measured."""
    again = spreads(subject)
    yield from repeats.findings(subject, again)
    noise = loudness(subject, casts.seen)
    subject = with_noise(subject, noise, spread_of(subject, again), casts.seen)
    yield from _answers(subject, ON_ONE_GRAPH)
    yield from _on_many_graphs(subject)
    yield from precision.findings(subject, noise, casts)


def _on_many_graphs(subject: Subject) -> Iterator[Finding]:
    yield from _answers(subject, ON_MANY_GRAPHS)
    if forward_ad.defines_jvp(subject):
        yield from forward_ad.findings(subject)
    if batching.defines_vmap(subject):
        yield from batching.findings(subject)


def _answers(subject: Subject, questions: Iterable[Question]) -> Iterator[Finding]:
    for question in questions:
        try:
            yield from question(subject)
        except EvaluationError as error:
            code = "GV903" if error.stage == "backward" else "GV902"
            yield Finding(code=code, verdict=Verdict.ERROR, message=f"{raised(error)}, though it did not before")


def _told_once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    found = tuple(findings)
    explained = {
        code
        for finding in found
        if finding.verdict is Verdict.FAIL or finding.code.startswith("GV5")
        for code in _EXPLAINS.get(finding.code, ())
    }
    kept = [finding for finding in found if finding.code not in explained]
    order = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.PASS)
    return tuple(sorted(kept, key=lambda finding: (order.index(finding.verdict), finding.code)))


def _result(problem: Problem, findings: tuple[Finding, ...], left_out: str) -> CheckResult:
    verdict = worst([*(finding.verdict for finding in findings), Verdict.PASS])
    result = CheckResult(check=NAME, verdict=verdict, evaluations=evaluations(problem), findings=findings)
    broken = [finding.message for finding in findings if finding.verdict is not Verdict.PASS]
    if not broken:
        return replace(result, message=f"every promise kept{_remarked(findings)}{left_out}")
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    return replace(result, message=f"{broken[0]}{more}")


def _remarked(findings: tuple[Finding, ...]) -> str:
    codes = sorted({finding.code for finding in findings})
    return f", remarks {', '.join(codes)}" if codes else ""


def _left_out(subject: Subject) -> str:
    if subject.hand_written:
        return ""
    return "; no custom Function in the graph, so what backward returns, saves and keeps was not looked at"
