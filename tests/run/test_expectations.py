"""Results are compared with the key `expect` of the spec."""

from __future__ import annotations

import pytest

from gradverify.case import Expectation
from gradverify.result import CheckResult, ExpectedCheck, Finding, Verdict, worst
from gradverify.run.expectations import expected_verdict, is_as_expected, unmet_expectation, with_claim
from gradverify.usage import BytesClaim, Comparison, Measured, Usage
from tests.run.making import case

PASS, FAIL, SKIP, ERROR = Verdict.PASS, Verdict.FAIL, Verdict.SKIP, Verdict.ERROR


def expected(**verdicts: Verdict) -> dict[str, ExpectedCheck]:
    return {name: ExpectedCheck(check=name, verdict=verdict) for name, verdict in verdicts.items()}


def checks(cause: str | None = None, **verdicts: Verdict) -> list[CheckResult]:
    found = [CheckResult(check=name, verdict=verdict) for name, verdict in verdicts.items()]
    finding = Finding(code="GV101", verdict=FAIL, message="", cause=cause)
    return [
        CheckResult(check=result.check, verdict=result.verdict, findings=(finding,) if result.verdict is FAIL else ())
        for result in found
    ]


@pytest.mark.parametrize(
    ("expect", "results", "met"),
    [
        (Expectation(), checks(gradcheck=PASS), True),
        (Expectation(), checks(gradcheck=FAIL), False),
        (Expectation(), checks(gradcheck=SKIP), True),
        (Expectation(verdict=FAIL), checks(gradcheck=FAIL), True),
        (Expectation(verdict=FAIL), checks(gradcheck=PASS), False),
        (Expectation(checks=expected(gradcheck=FAIL)), checks(gradcheck=FAIL, gradgradcheck=PASS), True),
        (Expectation(checks=expected(gradcheck=FAIL)), checks(gradcheck=FAIL, gradgradcheck=SKIP), True),
        (Expectation(checks=expected(gradcheck=FAIL)), checks(gradcheck=FAIL, gradgradcheck=FAIL), False),
        (Expectation(checks=expected(gradcheck=FAIL)), checks(gradcheck=PASS, gradgradcheck=PASS), False),
        (Expectation(checks=expected(gradcheck=FAIL)), checks(gradgradcheck=PASS), True),
        (Expectation(verdict=FAIL, cause="missing-mask"), checks("missing-mask", gradcheck=FAIL), True),
        (Expectation(verdict=FAIL, cause="missing-mask"), checks("sign-flip", gradcheck=FAIL), False),
        (Expectation(checks=expected(gradcheck=FAIL), cause="missing-mask"), checks(gradcheck=FAIL), False),
        (Expectation(checks=expected(gradcheck=FAIL), cause="missing-mask"), checks(gradgradcheck=PASS), True),
    ],
)
def test_as_expected(expect: Expectation, results: list[CheckResult], met: bool) -> None:
    names = tuple(result.check for result in results)
    wanted = case("Square", expect=expect, checks=names)
    assert is_as_expected(wanted, worst(result.verdict for result in results), results) is met


ONLY_STE = ExpectedCheck(check="gradcheck", verdict=FAIL, cause="straight-through")
ONLY_101 = ExpectedCheck(check="gradcheck", verdict=FAIL, codes=("GV101",))
NOISY = ExpectedCheck(check="gradcheck", verdict=Verdict.INCONCLUSIVE, codes=("GV104",))


def found(code: str, cause: str | None = None, verdict: Verdict = FAIL) -> Finding:
    return Finding(code=code, verdict=verdict, message="", cause=cause)


STE, PLAIN, SCALED = found("GV101", "straight-through"), found("GV101"), found("GV101", "constant-factor")
LINEAR, OPEN, KINK = found("GV301"), found("GV104", verdict=Verdict.INCONCLUSIVE), found("GV100", verdict=PASS)


@pytest.mark.parametrize(
    ("wanted", "verdict", "findings", "message"),
    [
        (ONLY_STE, FAIL, [STE, STE, KINK], ""),
        (ONLY_STE, FAIL, [STE, OPEN], ""),
        (ONLY_STE, SKIP, [], ""),
        (ONLY_STE, PASS, [KINK], "expected gradcheck fail, found pass"),
        (
            ONLY_STE,
            FAIL,
            [STE, SCALED],
            "expected gradcheck to fail by cause straight-through alone, found GV101 with cause constant-factor",
        ),
        (
            ONLY_STE,
            FAIL,
            [PLAIN, SCALED, PLAIN],
            "expected gradcheck to fail by cause straight-through alone, "
            "found GV101 without a cause and GV101 with cause constant-factor",
        ),
        (ONLY_STE, FAIL, [], "expected gradcheck to fail by cause straight-through alone, found no finding"),
        (ONLY_101, FAIL, [STE, PLAIN, KINK], ""),
        (ONLY_101, FAIL, [PLAIN, LINEAR], "expected gradcheck to find GV101 alone, found GV101 and GV301"),
        (ONLY_101, FAIL, [PLAIN, OPEN], "expected gradcheck to find GV101 alone, found GV101 and GV104"),
        (NOISY, Verdict.INCONCLUSIVE, [OPEN], ""),
        (NOISY, FAIL, [OPEN, PLAIN], "expected gradcheck inconclusive, found fail"),
    ],
)
def test_causes_and_codes_are_expected_exactly(
    wanted: ExpectedCheck, verdict: Verdict, findings: list[Finding], message: str
) -> None:
    result = CheckResult(check="gradcheck", verdict=verdict, findings=tuple(findings))
    asked = case("Square", expect=Expectation(verdict=FAIL, checks={"gradcheck": wanted}), checks=("gradcheck",))
    assert is_as_expected(asked, verdict, [result]) is (message == "")
    assert unmet_expectation(asked, [result]) == message


def test_the_verdict_of_the_case_follows_from_those_of_its_checks() -> None:
    both = case("Square", checks=("gradcheck", "gradgradcheck"), expect=Expectation(checks=expected(gradcheck=FAIL)))
    assert expected_verdict(both) is FAIL
    only = case("Square", checks=("gradgradcheck",), expect=Expectation(checks=expected(gradcheck=FAIL)))
    assert expected_verdict(only) is PASS


def test_a_case_that_could_not_be_run_is_expected_only_with_expect_error() -> None:
    assert not is_as_expected(case("Square"), ERROR, [])
    assert not is_as_expected(case("Square", expect=Expectation(checks=expected(gradcheck=FAIL))), ERROR, [])
    assert is_as_expected(case("Square", expect=Expectation(verdict=ERROR)), ERROR, [])


@pytest.mark.parametrize(
    ("own", "other", "factor", "met"),
    [(29, 100, 0.29, True), (7, 70, 0.1, True), (30, 100, 0.29, False), (0, 0, 0.5, True)],
)
def test_claims_are_compared_exactly(own: int, other: int, factor: float, met: bool) -> None:
    claim = BytesClaim(written="<= …", comparison=Comparison.AT_MOST, factor=factor)
    found = Measured(
        function=Usage(saved_bytes=own, peak_bytes=0), other=Usage(saved_bytes=other, peak_bytes=0), claim=claim.written
    )
    asked = case("Square", expect=Expectation(saved_bytes=claim))
    assert is_as_expected(asked, PASS, checks(gradcheck=PASS), found) is met
    assert with_claim(found, claim).claim_holds is met


def test_claim_that_was_not_measured_is_not_met() -> None:
    claim = BytesClaim(written="<= 24 B", comparison=Comparison.AT_MOST, size=24.0)
    asked = case("Square", expect=Expectation(saved_bytes=claim))
    assert not is_as_expected(asked, PASS, checks(gradcheck=PASS), None)
    text = "expected saved_bytes <= 24 B, which could not be judged"
    assert unmet_expectation(asked, checks(gradcheck=PASS), None) == text
    assert unmet_expectation(asked, checks(gradcheck=PASS), Measured(missing="no time")) == f"{text}: no time"
    assert is_as_expected(asked, SKIP, checks(gradcheck=SKIP), None)
