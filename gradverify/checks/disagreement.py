"""Reasons why torch's own check and ours disagree, in one line."""

from __future__ import annotations

from dataclasses import replace

from gradverify.result import CheckResult, Element, ElementVerdict, TorchOutcome, Verdict

_MISMATCH = "Jacobian mismatch"  # begins its messages about numbers
_RTOL, _ATOL = 1e-3, 1e-5  # defaults of torch.autograd.gradcheck


def with_torch_outcome(ours: CheckResult, theirs: TorchOutcome) -> CheckResult:
    """Return our result with torch's outcome in it, and the reason if the two disagree."""
    reason = _reason(ours, theirs)
    message = "; ".join(part for part in (theirs.message.rstrip(",:"), reason) if part)
    return replace(ours, torch=replace(theirs, message=message))


def _reason(ours: CheckResult, theirs: TorchOutcome) -> str:
    if theirs.verdict is Verdict.FAIL and ours.verdict is Verdict.PASS:
        return _why_it_fails(ours) if _MISMATCH in theirs.message else ""  # else it failed for another reason
    if theirs.verdict is Verdict.FAIL and ours.verdict is Verdict.INCONCLUSIVE:
        return "it takes what cannot be judged here for a mismatch"
    if theirs.verdict is Verdict.PASS and ours.verdict is Verdict.FAIL:
        return _why_it_passes(ours)
    if theirs.verdict is Verdict.PASS and ours.verdict is Verdict.INCONCLUSIVE:
        return "it passes, but without an error bar to say that the differences mean anything here"
    return ""


def _why_it_fails(ours: CheckResult) -> str:
    if ours.kinks:
        return "at a kink it expects the mean of the two slopes"
    if any(element.verdict is ElementVerdict.EDGE for element in _elements(ours)):
        return "at the edge of the domain its difference leaves the domain"
    step = "its one step of 1e-6 is not accurate enough here, or backward does not return the same at every call"
    return f"{step}; our error bars are at most {ours.max_error_bar:.1g}" if ours.max_error_bar else step


def _why_it_passes(ours: CheckResult) -> str:
    wrong = [element for element in _elements(ours) if element.verdict is ElementVerdict.MISMATCH]
    if wrong and all(element.error <= _RTOL * abs(element.numeric) + _ATOL for element in wrong):
        return f"it passes: the error lies within its tolerance of {_RTOL:g} relative and {_ATOL:g} absolute"
    return "it passes: its differences do not show this error"


def _elements(result: CheckResult) -> list[Element]:
    return [element for finding in result.findings for element in finding.elements]
