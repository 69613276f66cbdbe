"""What a try that went wrong shows: confirmed by a check, at inputs as small as can be found."""

from __future__ import annotations

from gradverify.case import Case
from gradverify.deadline import OutOfTime
from gradverify.exploration.attempt import Attempt, attempt, codes, confirmed, entries, failing_like, suspect_like
from gradverify.exploration.change import Base, Change
from gradverify.exploration.inputs import tensor_at, tensor_inputs
from gradverify.exploration.shrink import differences, shrink, with_smaller_sizes
from gradverify.result import CheckResult, Discovery, Grade, Verdict

_MOST_ENTRIES = 10_000  # of a Jacobian that is judged entry by entry before it is made smaller


def question(base: Base, number: int, change: Change, found: Attempt) -> Discovery:
    """Return the discovery of inputs that forward accepts and backward refuses."""
    inputs, spec = base.tools.text(found.case)
    return Discovery(
        grade=Grade.QUESTION,
        number=number,
        changes=(change.phrase,),
        inputs=inputs,
        spec=spec,
        message=f"forward runs, but {found.judged.message}",
    )


def failure(base: Base, number: int, change: Change, found: Attempt) -> Discovery | None:
    """Return the discovery if the check confirms it, at the smallest inputs that still fail."""
    found = _affordable(base, found)
    result = confirmed(base, found)
    if result is None:
        return None
    small = shrink(base, found.case, failing_like(base, codes(result), found.check))
    shown = _diagnosed(base, small, found.check) or _diagnosed(base, found.case, found.check) or result
    inputs, spec = base.tools.text(small)
    return Discovery(
        grade=Grade.EXTREME if change.far else Grade.FAILURE,
        number=number,
        changes=_phrases(base, change, small),
        inputs=inputs,
        spec=spec,
        message=next((f.message for f in shown.findings if f.verdict is Verdict.FAIL), shown.message),
        checks=(shown,),
    )


def is_same(one: Discovery, other: Discovery) -> bool:
    """Return True if two discoveries are at the same inputs, or name the same cause in the same block."""
    causes = _causes(one)
    at_the_same = one.inputs == other.inputs if one.inputs else one.changes == other.changes
    return at_the_same or (bool(causes) and causes == _causes(other))


def _affordable(base: Base, found: Attempt) -> Attempt:
    """Return the attempt; if its Jacobian is large, one with smaller sizes that seems wrong too."""
    if entries(found) <= _MOST_ENTRIES:
        return found
    return attempt(base, with_smaller_sizes(base, found.case, suspect_like(base, found.check)))


def _diagnosed(base: Base, case: Case, check: str) -> CheckResult | None:
    """Return the failing result of a check with its cause, None if it passes or runs out of time."""
    try:
        found = attempt(base, case)
        if found.problem is None:
            return None
        result = base.tools.diagnosed(case, found.problem, check)
    except OutOfTime:
        return None
    return result if result.verdict is Verdict.FAIL else None


def _phrases(base: Base, change: Change, small: Case) -> tuple[str, ...]:
    """Return what is different at the smallest failing inputs: arguments and shapes, else the change that found it."""
    before = {path: tensor_at(base.case, path, base.tools) for path in tensor_inputs(base.case)}
    after = {path: tensor_at(small, path, base.tools) for path in tensor_inputs(small)}
    found = differences(base.case, small, before, after)
    if change.kind in ("arguments", "sizes", "rank", "layout") and found:
        return found
    return (change.phrase, *(phrase for phrase in found if phrase not in change.phrase))


def _causes(found: Discovery) -> set[tuple[str | None, ...]]:
    findings = [finding for check in found.checks for finding in check.findings if finding.cause is not None]
    return {(finding.code, finding.cause, finding.of, finding.wrt) for finding in findings}
