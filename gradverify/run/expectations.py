"""Whether what came out is what the spec expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gradverify.case import Case, Expectation
from gradverify.result import CheckResult, ExpectedCheck, Finding, Verdict, worst


def expected_verdict(case: Case) -> Verdict:
    """Return the verdict that the spec expects of the case as a whole."""
    expect = case.expect
    if not expect.checks:
        return expect.verdict
    return worst(_expected(expect, name).verdict for name in case.checks)


def is_as_expected(case: Case, verdict: Verdict, checks: Sequence[CheckResult]) -> bool:
    """Tell whether a case came out as its spec says; a skip always does."""
    if verdict is Verdict.SKIP:
        return True
    expect = case.expect
    if not checks:
        return verdict is expected_verdict(case) and not expect.checks and expect.cause is None
    met = not any(_deviations(expect, checks)) if expect.checks else verdict is expect.verdict
    return met and _has_cause(expect, checks)


def surprise(case: Case, checks: Sequence[CheckResult]) -> str:
    """Return what the spec expected and what was found, where its `expect` says more than that all should pass."""
    expect = case.expect
    if not expect.checks and expect.verdict is Verdict.PASS and expect.cause is None:
        return ""
    wrong = [*_deviations(expect, checks)] if expect.checks else []
    if not expect.checks and all(result.verdict is not expect.verdict for result in checks):
        wrong.append(f"{expect.verdict.value}")
    if expect.cause is not None and not _has_cause(expect, checks):
        named = sorted({finding.cause for result in checks for finding in result.findings if finding.cause})
        wrong.append(f"cause {expect.cause}, found {' and '.join(named) or 'none'}")
    return f"expected {'; '.join(wrong)}" if wrong else ""


def _expected(expect: Expectation, check: str) -> ExpectedCheck:
    """Return what is expected of a check; one that is not mentioned must pass."""
    return expect.checks.get(check) or ExpectedCheck(check=check, verdict=Verdict.PASS)


def _deviations(expect: Expectation, checks: Iterable[CheckResult]) -> Iterator[str]:
    """Yield what was expected of each check and not found; a skip is always as expected."""
    for result in checks:
        wanted = _expected(expect, result.check)
        if result.verdict is Verdict.SKIP:
            continue
        if result.verdict is not wanted.verdict:
            yield f"{result.check} {wanted.verdict.value}, found {result.verdict.value}"
        else:
            yield from _other_cause(wanted, result)
            yield from _other_codes(wanted, result)


def _other_cause(wanted: ExpectedCheck, result: CheckResult) -> Iterator[str]:
    """Yield the wrong findings that have another cause than the expected one, or none."""
    wrong = [finding for finding in result.findings if finding.verdict is Verdict.FAIL]
    if wanted.cause is None or (wrong and all(finding.cause == wanted.cause for finding in wrong)):
        return
    others = dict.fromkeys(_caused(finding) for finding in wrong if finding.cause != wanted.cause)
    found = " and ".join(others) or "no finding"
    yield f"{result.check} to fail by cause {wanted.cause} alone, found {found}"


def _caused(finding: Finding) -> str:
    return f"{finding.code} with cause {finding.cause}" if finding.cause else f"{finding.code} without a cause"


def _other_codes(wanted: ExpectedCheck, result: CheckResult) -> Iterator[str]:
    """Yield the codes found where they are not those expected; findings that fail nothing do not count."""
    told = (finding for finding in result.findings if finding.verdict not in (Verdict.PASS, Verdict.SKIP))
    codes = sorted({finding.code for finding in told})
    if wanted.codes and codes != sorted(wanted.codes):
        yield f"{result.check} to find {' and '.join(wanted.codes)} alone, found {' and '.join(codes) or 'none'}"


def _has_cause(expect: Expectation, checks: Iterable[CheckResult]) -> bool:
    """Tell whether the expected cause was named; it is not asked for where no check that should fail was run."""
    if expect.cause is None:
        return True
    asked = [
        result for result in checks if not expect.checks or _expected(expect, result.check).verdict is Verdict.FAIL
    ]
    named = {finding.cause for result in asked for finding in result.findings}
    return not asked or expect.cause in named
