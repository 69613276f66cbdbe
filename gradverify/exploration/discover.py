"""What a try that went wrong shows: confirmed by a check, at inputs as small as can be found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gradverify.case import Case
from gradverify.checks.contract import check as contract
from gradverify.deadline import OutOfTime
from gradverify.exploration.attempt import (
    SUMMED,
    Attempt,
    attempt,
    codes,
    confirmed,
    entries,
    failing_like,
    is_rounding,
    looked_closer,
    memory_of,
    suspect_like,
)
from gradverify.exploration.change import Base, Change, Rule
from gradverify.exploration.inputs import tensor_at, tensor_inputs, written_out
from gradverify.exploration.judge import Outcome
from gradverify.exploration.proposals import values
from gradverify.exploration.proposals.memory import without_dtype
from gradverify.exploration.shrink import differences, shrink, with_smaller_sizes
from gradverify.result import CheckResult, Discovery, ElementVerdict, Finding, Grade, Verdict

_NO_GRADIENT = "GV102"
_OF_CONTRACT = ("GV3", "GV4", "GV5")
_KEEPS_STATE = "now also at the inputs as written: an earlier call left state behind"
_PLACE = "single-elements"  # a cause that says where, and not why
_OF_ALL = ("detached", "straight-through")  # that would have shown at other values too
_FEW = 2  # entries that a cause may explain by coincidence
_MOST_ENTRIES = 10_000  # of a Jacobian that is judged entry by entry before it is made smaller


def refusal(base: Base, number: int, change: Change, found: Attempt) -> Discovery:
    """Return the discovery of inputs that forward accepts and backward refuses: a question, or a failure at a default.

    What forward declares as a default is no mistake of the caller.
    """
    result = looked_closer(base, found) if change.to_default else None
    if result is not None and result.verdict in (Verdict.FAIL, Verdict.ERROR):
        inputs, spec = base.tools.text(found.case)
        return Discovery(
            grade=Grade.FAILURE,
            number=number,
            changes=(change.phrase,),
            inputs=inputs,
            spec=spec,
            message=result.message,
            checks=(result,),
        )
    return _question(base, number, change, found, f"forward runs, but {found.judged.message}")


def failure(base: Base, number: int, change: Change, found: Attempt) -> Discovery | None:
    """Return the discovery if the check confirms it, at the smallest inputs that still fail.

    A tensor in place of None may be a constant. If backward has no gradient for it, that is a question, as is what the
    check cannot decide. What the contract finds at the inputs as written too is no discovery, nor is rounding.
    """
    affordable = _affordable(base, found, change.rules)
    result = looked_closer(base, affordable)
    if affordable is not found and result is not None and result.verdict is Verdict.PASS:  # smaller inputs hide it
        result = looked_closer(base, found)
    else:
        found = affordable
    if result is not None and not change.far and (open_finding := _undetermined(result)) is not None:
        message = f"the gradient may be wrong, but {result.check} cannot tell: {open_finding.message}"
        return _question(base, number, change, found, message)
    if result is None or result.verdict is not Verdict.FAIL or is_rounding(base, found):
        return None
    wrong = [finding for finding in result.findings if finding.verdict is Verdict.FAIL]
    new = tensor_inputs(found.case).keys() - tensor_inputs(base.case).keys()
    wanted = frozenset(each.code for each in wrong if each.code != _NO_GRADIENT or each.wrt not in new)
    if wrong and not wanted:
        return _question(base, number, change, found, wrong[0].message)
    if any(code.startswith(_OF_CONTRACT) for code in wanted):
        wanted -= base.broken() | {SUMMED}
        if not wanted:
            return None
    small = shrink(base, found.case, failing_like(base, wanted, found.check, change.rules))
    wide = _diagnosed(base, found.case, found.check)
    shown = _diagnosed(base, small, found.check)
    shown = (wide or result) if shown is None else shown if wide is None else _with_causes_of(shown, wide)
    if change.kind in values.KINDS:
        shown = _without_causes(shown, _OF_ALL)
    inputs, spec = base.tools.text(small)
    return Discovery(
        grade=Grade.EXTREME if change.far else Grade.FAILURE,
        number=number,
        changes=(*_phrases(base, change, small), *_state(base)),
        inputs=inputs,
        spec=spec,
        message=next((f.message for f in shown.findings if f.verdict is Verdict.FAIL), shown.message),
        checks=(shown, *_reasons(base, small, found.check)),
    )


def _state(base: Base) -> tuple[str, ...]:
    """Return a phrase if the gradient at the inputs as written, which was right, is wrong by now; else none."""
    try:
        again = attempt(base, base.case)
        is_wrong = again.judged.outcome is Outcome.SUSPECT and again.check != contract.NAME
        return (_KEEPS_STATE,) if is_wrong and confirmed(base, again) is not None else ()
    except OutOfTime:
        return ()


def _reasons(base: Base, case: Case, check: str) -> tuple[CheckResult, ...]:
    """Return what the contract finds where numbers are wrong, if it is not so as written: it may say why."""
    if check == contract.NAME or contract.NAME not in base.case.checks:
        return ()
    try:
        found = attempt(base, case)
        result = None if found.problem is None else base.tools.check(case, found.problem, contract.NAME)
    except OutOfTime:
        return ()
    return () if result is None or codes(result) <= base.broken() else (result,)


def _undetermined(result: CheckResult) -> Finding | None:
    """Return the first finding of an inconclusive result that leaves an entry open, where forward does not jump."""
    if result.verdict is not Verdict.INCONCLUSIVE:
        return None
    for finding in result.findings:
        verdicts = {element.verdict for element in finding.elements}
        if finding.verdict is Verdict.INCONCLUSIVE and ElementVerdict.UNDETERMINED in verdicts:
            return finding
    return None


def _question(base: Base, number: int, change: Change, found: Attempt, message: str) -> Discovery:
    inputs, spec = base.tools.text(found.case)
    return Discovery(
        grade=Grade.QUESTION, number=number, changes=(change.phrase,), inputs=inputs, spec=spec, message=message
    )


def is_same(one: Discovery, other: Discovery) -> bool:
    """Return True if two discoveries are one mistake.

    They are at the same inputs, or name the same cause in the same block. If one has no cause, the same input has
    changed, and a block is wrong in both; but other texts and flags may show other mistakes. Questions are the same if
    they say the same.
    """
    if (one.inputs == other.inputs) if one.inputs else (one.changes == other.changes):
        return True
    causes, others = _causes(one), _causes(other)
    if causes and others:
        return causes == others
    if one.message == other.message and not one.checks:
        return True
    says, also = (each.message.partition(", but ")[0] for each in (one, other))
    is_alike = not blocks_of(one).isdisjoint(blocks_of(other)) if one.checks and other.checks else says == also
    return is_alike and _changed(one) == _changed(other)


def _changed(found: Discovery) -> str:
    """Return the name of what was changed, with the new value if that is no number and no tensor."""
    name, _, new = found.changes[0].partition(": ")
    return f"{name}: {new}" if new.partition(" (was ")[0].isalpha() else name


def _affordable(base: Base, found: Attempt, rules: Sequence[Rule]) -> Attempt:
    """Return the attempt; if its Jacobian is large, one with smaller sizes that seems wrong too."""
    if entries(found) <= _MOST_ENTRIES:
        return found
    return attempt(base, with_smaller_sizes(base, found.case, suspect_like(base, found.check, rules)))


def _diagnosed(base: Base, case: Case, check: str) -> CheckResult | None:
    """Return the failing result of a check with its cause, None if it passes or runs out of time."""
    try:
        found = attempt(base, case)
        if found.problem is None:
            return None
        with memory_of(found):
            result = base.tools.diagnosed(case, found.problem, check)
    except OutOfTime:
        return None
    return result if result.verdict is Verdict.FAIL else None


def _with_causes_of(small: CheckResult, wide: CheckResult) -> CheckResult:
    """Return the result at small inputs with the causes that larger ones show: many patterns fit a few entries.

    So a cause that the same block of the larger ones does not show is left out.
    """
    known = {(finding.code, finding.of, finding.wrt): finding for finding in wide.findings}
    findings = []
    for finding in small.findings:
        other = known.get((finding.code, finding.of, finding.wrt), finding)
        says = finding.message.partition("\n")[0]
        by_chance = other is not finding or finding.total <= _FEW
        if other.cause not in (None, _PLACE) and _why(other) != _why(finding):
            message = f"{says}\n{_why(other)} (before the inputs were made small)"
            finding = replace(finding, cause=other.cause, message=message)
        elif other.cause in (None, _PLACE) and finding.cause != _PLACE and by_chance:
            finding = replace(finding, cause=None, message=says)
        findings.append(finding)
    return replace(small, findings=tuple(findings))


def _without_causes(result: CheckResult, causes: Collection[str]) -> CheckResult:
    findings = [
        replace(each, cause=None, message=each.message.partition("\n")[0]) if each.cause in causes else each
        for each in result.findings
    ]
    return replace(result, findings=tuple(findings))


def _why(finding: Finding) -> str:
    """Return the lines of a message that explain the cause."""
    return finding.message.partition("\n")[2]


def _phrases(base: Base, change: Change, small: Case) -> tuple[str, ...]:
    """Return what is different at the smallest failing inputs: arguments and shapes, else the change that found it."""
    before = {path: tensor_at(base.case, path, base.tools) for path in tensor_inputs(base.case)}
    after = {path: tensor_at(small, path, base.tools) for path in tensor_inputs(small)}
    found = differences(base, small, before, after)
    parts = change.parts or (change,)
    is_plain = change.kind in ("arguments", "sizes", "rank", "layout") or change.size is not None
    if is_plain and found:
        return (*found, *(_values_of(part, small) for part in parts if part.kind in values.KINDS))
    says = change.phrase if small.dtype != base.case.dtype else without_dtype(change.phrase)
    if change.parts or change.kind in values.KINDS:
        says = " with ".join(_values_of(part, small) if part.kind in values.KINDS else part.phrase for part in parts)
    return (says, *(phrase for phrase in found if phrase not in says))


def _values_of(change: Change, small: Case) -> str:
    """Return the phrase of a change of values, but not that of zeros where the inputs made small have others."""
    changed = change.kind == values.ZEROS and written_out(change.apply(small)) != written_out(small)
    return f"{', '.join(change.names)}: other values" if changed else change.phrase


def blocks_of(found: Discovery) -> set[tuple[str | None, ...]]:
    """Return what is wrong, by code, output and input."""
    failing = [each for check in found.checks[:1] for each in check.findings if each.verdict is Verdict.FAIL]
    return {(finding.code, finding.of, finding.wrt) for finding in failing}


def _causes(found: Discovery) -> set[tuple[str | None, ...]]:
    """Return what names the mistake: causes in blocks, or what the contract finds."""
    return {
        (finding.code, finding.cause, finding.of, finding.wrt)
        for check in found.checks[:1]
        for finding in check.findings
        if finding.cause not in (None, _PLACE) or (check.check == contract.NAME and finding.verdict is Verdict.FAIL)
    }
