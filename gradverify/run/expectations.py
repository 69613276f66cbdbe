"""Compare the results of a case with the key `expect` of its spec."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from gradverify.case import Case, Expectation
from gradverify.result import CheckResult, ExpectedCheck, Finding, Verdict, worst
from gradverify.usage import BytesClaim, Comparison, Measured

_HOLDS = MappingProxyType(
    {
        Comparison.AT_MOST: operator.le,
        Comparison.LESS: operator.lt,
        Comparison.EQUAL: operator.eq,
        Comparison.AT_LEAST: operator.ge,
        Comparison.MORE: operator.gt,
    }
)


def expected_verdict(case: Case) -> Verdict:
    """Return the verdict that the spec expects of the whole case."""
    expect = case.expect
    if not expect.checks:
        return expect.verdict
    return worst(_expected(expect, name).verdict for name in case.checks)


def is_as_expected(
    case: Case, verdict: Verdict, checks: Sequence[CheckResult], measured: Measured | None = None
) -> bool:
    """True if verdicts, causes, codes and bytes are as the spec expects. A skipped case always is as expected."""
    if verdict is Verdict.SKIP:
        return True
    expect = case.expect
    if not checks:
        return verdict is expected_verdict(case) and not expect.checks and expect.cause is None
    met = not any(_deviations(expect, checks)) if expect.checks else verdict is expect.verdict
    return met and _has_cause(expect, checks) and not any(_bytes_deviations(expect.saved_bytes, measured))


def unmet_expectation(case: Case, checks: Sequence[CheckResult], measured: Measured | None = None) -> str:
    """Return the message `expected …, found …` for a spec with `expect`; "" without one, or if nothing deviates."""
    expect = case.expect
    if expect == Expectation():
        return ""
    wrong = [*_deviations(expect, checks)] if expect.checks else []
    if not expect.checks and all(result.verdict is not expect.verdict for result in checks):
        wrong.append(f"{expect.verdict.value}")
    if expect.cause is not None and not _has_cause(expect, checks):
        named = sorted({finding.cause for result in checks for finding in result.findings if finding.cause})
        wrong.append(f"cause {expect.cause}, found {' and '.join(named) or 'none'}")
    wrong += _bytes_deviations(expect.saved_bytes, measured)
    return f"expected {'; '.join(wrong)}" if wrong else ""


def with_claim(measured: Measured, claim: BytesClaim | None) -> Measured:
    """Return the measured values with the claim and whether it holds."""
    holds = not any(_bytes_deviations(claim, measured))
    return measured if claim is None else replace(measured, claim=claim.written, claim_holds=holds)


def _expected(expect: Expectation, check: str) -> ExpectedCheck:
    """Return the expectation for a check; a check that `expect` does not name must pass."""
    return expect.checks.get(check) or ExpectedCheck(check=check, verdict=Verdict.PASS)


def _deviations(expect: Expectation, checks: Iterable[CheckResult]) -> Iterator[str]:
    """Yield a message for each check that deviates from its expectation. Skipped checks never deviate."""
    for result in checks:
        expectation = _expected(expect, result.check)
        if result.verdict is Verdict.SKIP:
            continue
        if result.verdict is not expectation.verdict:
            yield f"{result.check} {expectation.verdict.value}, found {result.verdict.value}"
        else:
            yield from _cause_deviations(expectation, result)
            yield from _code_deviations(expectation, result)


def _cause_deviations(expectation: ExpectedCheck, result: CheckResult) -> Iterator[str]:
    """Yield a message if a failed finding does not have the expected cause."""
    wrong = [finding for finding in result.findings if finding.verdict is Verdict.FAIL]
    if expectation.cause is None or (wrong and all(finding.cause == expectation.cause for finding in wrong)):
        return
    others = dict.fromkeys(_with_cause(finding) for finding in wrong if finding.cause != expectation.cause)
    found = " and ".join(others) or "no finding"
    yield f"{result.check} to fail by cause {expectation.cause} alone, found {found}"


def _with_cause(finding: Finding) -> str:
    return f"{finding.code} with cause {finding.cause}" if finding.cause else f"{finding.code} without a cause"


def _code_deviations(expectation: ExpectedCheck, result: CheckResult) -> Iterator[str]:
    """Yield a message if the codes of the check's findings, remarks excluded, are not the expected codes."""
    counted = (finding for finding in result.findings if finding.verdict not in (Verdict.PASS, Verdict.SKIP))
    codes = sorted({finding.code for finding in counted})
    if expectation.codes and codes != sorted(expectation.codes):
        yield f"{result.check} to find {' and '.join(expectation.codes)} alone, found {' and '.join(codes) or 'none'}"


def _bytes_deviations(claim: BytesClaim | None, measured: Measured | None) -> Iterator[str]:
    """Yield a message if the claim about saved bytes does not hold, or cannot be judged."""
    if claim is None:
        return
    own = None if measured is None else measured.function
    other = None if measured is None else measured.other
    limit: float | Fraction | None = claim.size
    if claim.factor is not None:
        limit = None if other is None else Fraction(str(claim.factor)) * other.saved_bytes
    if measured is None or own is None or limit is None:
        why = f": {measured.missing}" if measured is not None else ""
        yield f"saved_bytes {claim.written}, which could not be judged{why}"
    elif not _HOLDS[claim.comparison](own.saved_bytes, limit):
        beside = f", {measured.compared_with.value} {_exactly(other.saved_bytes)}" if other is not None else ""
        ratio = (
            f" ({own.saved_bytes / other.saved_bytes:.4g} of it)"
            if claim.factor and other and other.saved_bytes
            else ""
        )
        yield f"saved_bytes {claim.written}, found {_exactly(own.saved_bytes)}{beside}{ratio}"


def _exactly(size: int) -> str:
    return f"{size:,} B"


def _has_cause(expect: Expectation, checks: Iterable[CheckResult]) -> bool:
    """True if a check that should fail named the expected cause, or if no such check was run."""
    if expect.cause is None:
        return True
    should_fail = [
        result for result in checks if not expect.checks or _expected(expect, result.check).verdict is Verdict.FAIL
    ]
    named = {finding.cause for result in should_fail for finding in result.findings}
    return not should_fail or expect.cause in named
