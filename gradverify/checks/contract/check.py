"""Does backward keep the promises that autograd relies on? No step, no differences: the answers must fit each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gradverify.case import Settings
from gradverify.checks.contract.backward_writes import asked_again
from gradverify.checks.contract.questions import asked
from gradverify.checks.contract.repeats import Repeatable, steady
from gradverify.checks.contract.returned import refusals
from gradverify.checks.contract.subject import Subject, completed, opened
from gradverify.checks.failures import evaluations, not_dense, nothing_to_differentiate, skipped
from gradverify.checks.untracked import containers_seen, never_called, without_backward
from gradverify.core.backward.vjps import Reuse
from gradverify.core.model.deadline import OutOfTime
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "contract"
# Codes that compare two answers, which says nothing where answers vary by themselves.
_COMPARED = ("GV301", "GV303", "GV304", "GV305", "GV307", "GV308", "GV403", "GV404", "GV405", "GV408", "GV411")
_NOT_ASKED = "nothing else was asked: the forward is random, and its graph cannot be asked twice"
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
    reason = not_dense(record(problem).outputs)
    if reason:
        return skipped(NAME, problem, reason)
    with containers_seen() as seen:
        ready = steady(problem, settings)
    never = never_called(NAME, ready.problem, ready.tape, seen)
    if never is not None:
        return never
    if any(finding.verdict is Verdict.FAIL for finding in ready.findings):
        return _result(ready.problem, ready.findings, "")
    nothing = without_backward(NAME, ready.problem, ready.tape)
    if nothing is not None:
        return nothing
    refused = refusals(ready.problem, record(ready.problem))
    if refused:
        return _result(ready.problem, refused, "")
    return _answered(ready, settings)


def _answered(ready: Repeatable, settings: Settings) -> CheckResult:
    """Return the result of a backward that autograd takes; raises EvaluationError, and OutOfTime with what it found."""
    subject = opened(ready.problem, settings, ready.tape, ready.reuse)
    if ready.reuse is Reuse.SHARED:
        once = tuple(asked_again(subject, ready.tape))
        if once:  # answers of this graph cannot be compared, and another graph answers for other random numbers
            result = _result(ready.problem, (*once, *ready.findings), "")
            return replace(result, message=f"{result.message}; {_NOT_ASKED}")
    subject = completed(subject)
    found = list(ready.findings)
    try:
        found.extend(asked(subject))
    except OutOfTime as end:
        if any(finding.verdict is not Verdict.PASS for finding in found):
            end.found = _result(ready.problem, _told_once(found), "")
        raise
    return _result(ready.problem, _told_once(found), _left_out(subject))


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
