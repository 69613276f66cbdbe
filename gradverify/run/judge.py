"""Whether what came out is what the spec expects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradverify.case import Case, Expectation
from gradverify.result import CheckResult, Verdict, worst


def expected_verdict(case: Case) -> Verdict:
    """Return the verdict that the spec expects of the case as a whole."""
    expect = case.expect
    if not expect.checks:
        return expect.verdict
    return worst(expect.checks.get(name, Verdict.PASS) for name in case.checks)


def is_as_expected(case: Case, verdict: Verdict, checks: Sequence[CheckResult]) -> bool:
    """Tell whether a case came out as its spec says; a skip always does."""
    if verdict is Verdict.SKIP:
        return True
    expect = case.expect
    if not checks:
        return verdict is expected_verdict(case) and not expect.checks and expect.cause is None
    if not expect.checks:
        return verdict is expect.verdict and _has_cause(expect, checks)
    met = all(result.verdict in (Verdict.SKIP, expect.checks.get(result.check, Verdict.PASS)) for result in checks)
    return met and _has_cause(expect, checks)


def _has_cause(expect: Expectation, checks: Iterable[CheckResult]) -> bool:
    """Tell whether the expected cause was named; it is not asked for where no check that should fail was run."""
    if expect.cause is None:
        return True
    rest = Verdict.PASS if expect.checks else Verdict.FAIL
    asked = [result for result in checks if expect.checks.get(result.check, rest) is Verdict.FAIL]
    named = {finding.cause for result in asked for finding in result.findings}
    return not asked or expect.cause in named


def surprise(case: Case, checks: Sequence[CheckResult]) -> str:
    """Return what the spec expected and what was found, where its `expect` says more than that all should pass."""
    expect = case.expect
    if not expect.checks and expect.verdict is Verdict.PASS and expect.cause is None:
        return ""
    wrong = [
        f"{result.check} {wanted.value}, found {result.verdict.value}"
        for result in checks
        for wanted in [expect.checks.get(result.check, Verdict.PASS)]
        if expect.checks and result.verdict not in (wanted, Verdict.SKIP)
    ]
    if not expect.checks and all(result.verdict is not expect.verdict for result in checks):
        wrong.append(f"{expect.verdict.value}")
    if expect.cause is not None and not _has_cause(expect, checks):
        named = sorted({finding.cause for result in checks for finding in result.findings if finding.cause})
        wrong.append(f"cause {expect.cause}, found {' and '.join(named) or 'none'}")
    return f"expected {'; '.join(wrong)}" if wrong else ""
