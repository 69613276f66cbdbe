"""Does backward keep the rules that autograd relies on?

Most questions compare gradients with each other; few need finite differences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gradverify.case import Settings
from gradverify.checks.contract.all_questions import all_findings
from gradverify.checks.contract.backward_writes import repeated_backwards
from gradverify.checks.contract.repeats import RepeatableForward, repeatable_forward
from gradverify.checks.contract.returned import refusals
from gradverify.checks.contract.subject import Subject, with_first_gradients, with_zero_and_ones
from gradverify.checks.failures import evaluations, not_dense, nothing_to_differentiate, skipped
from gradverify.checks.untracked import containers_seen, never_called, without_backward
from gradverify.core.backward.vjps import Reuse
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.deadline import OutOfTime
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "contract"
# Codes that compare two gradients, which is meaningless if backward is not deterministic (GV407).
_COMPARED = (
    *("GV301", "GV303", "GV304", "GV305", "GV307", "GV308"),
    *("GV403", "GV404", "GV405", "GV408", "GV411", "GV506"),
)
_NOTHING_ELSE = "nothing else was asked: the forward is random, and its graph cannot be asked twice"
# Code -> codes of its consequences, which are not reported beside it.
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
    """Return the result of the contract check; raises EvaluationError if the first forward or backward raises."""
    if not problem.primals:
        reason = "no input is a floating or complex tensor that requires grad"
        return nothing_to_differentiate(NAME, problem, reason)
    reason = not_dense(record(problem).outputs)
    if reason:
        return skipped(NAME, problem, reason)
    with containers_seen() as containers:
        ready = repeatable_forward(problem, settings)
    uncalled = never_called(NAME, ready.problem, ready.tape, containers)
    if uncalled is not None:
        return uncalled
    if any(finding.verdict is Verdict.FAIL for finding in ready.findings):
        return _result(ready.problem, ready.findings, "")
    nothing = without_backward(NAME, ready.problem, ready.tape)
    if nothing is not None:
        return nothing
    refused = refusals(ready.problem, record(ready.problem))
    if refused:
        return _result(ready.problem, refused, "")
    return _all_questions(ready, settings)


def _all_questions(ready: RepeatableForward, settings: Settings) -> CheckResult:
    """Return the result for a backward whose gradients autograd accepts.

    Raises EvaluationError, and OutOfTime with the failures found so far as `found`.
    """
    subject = with_first_gradients(ready.problem, settings, ready.tape, ready.reuse)
    if ready.reuse is Reuse.SHARED:
        single_use = tuple(repeated_backwards(subject, ready.tape))
        if single_use:  # gradients of this graph cannot be compared, and another graph has other random numbers
            result = _result(ready.problem, (*single_use, *ready.findings), "")
            return replace(result, message=f"{result.message}; {_NOTHING_ELSE}")
    subject = with_zero_and_ones(subject)
    found = list(ready.findings)
    try:
        found.extend(all_findings(subject))
    except OutOfTime as end:
        if any(finding.verdict is not Verdict.PASS for finding in found):
            end.found = _result(ready.problem, without_consequences(found), "")
        raise
    return _result(ready.problem, without_consequences(found), _not_checked(subject))


def without_consequences(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings without those that others explain, the worst first."""
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
        return replace(result, message=f"every promise kept{_remarks(findings)}{left_out}")
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    return replace(result, message=f"{broken[0]}{more}")


def _remarks(findings: tuple[Finding, ...]) -> str:
    codes = sorted({finding.code for finding in findings})
    return f", remarks {', '.join(codes)}" if codes else ""


def _not_checked(subject: Subject) -> str:
    if subject.hand_written:
        return ""
    return "; no custom Function in the graph, so what backward returns, saves and keeps was not looked at"
