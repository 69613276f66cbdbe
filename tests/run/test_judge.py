"""What a spec expects is compared with what came out."""

from __future__ import annotations

import pytest

from gradverify.case import Expectation
from gradverify.result import CheckResult, Finding, Verdict, worst
from gradverify.run.judge import expected_verdict, is_as_expected
from tests.run.making import case

PASS, FAIL, SKIP, ERROR = Verdict.PASS, Verdict.FAIL, Verdict.SKIP, Verdict.ERROR


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
        (Expectation(checks={"gradcheck": FAIL}), checks(gradcheck=FAIL, gradgradcheck=PASS), True),
        (Expectation(checks={"gradcheck": FAIL}), checks(gradcheck=FAIL, gradgradcheck=SKIP), True),
        (Expectation(checks={"gradcheck": FAIL}), checks(gradcheck=FAIL, gradgradcheck=FAIL), False),
        (Expectation(checks={"gradcheck": FAIL}), checks(gradcheck=PASS, gradgradcheck=PASS), False),
        (Expectation(checks={"gradcheck": FAIL}), checks(gradgradcheck=PASS), True),
        (Expectation(verdict=FAIL, cause="missing-mask"), checks("missing-mask", gradcheck=FAIL), True),
        (Expectation(verdict=FAIL, cause="missing-mask"), checks("sign-flip", gradcheck=FAIL), False),
        (Expectation(checks={"gradcheck": FAIL}, cause="missing-mask"), checks(gradcheck=FAIL), False),
        (Expectation(checks={"gradcheck": FAIL}, cause="missing-mask"), checks(gradgradcheck=PASS), True),
    ],
)
def test_as_expected(expect: Expectation, results: list[CheckResult], met: bool) -> None:
    names = tuple(result.check for result in results)
    wanted = case("Square", expect=expect, checks=names)
    assert is_as_expected(wanted, worst(result.verdict for result in results), results) is met


def test_the_verdict_of_the_case_follows_from_those_of_its_checks() -> None:
    both = case("Square", checks=("gradcheck", "gradgradcheck"), expect=Expectation(checks={"gradcheck": FAIL}))
    assert expected_verdict(both) is FAIL
    only = case("Square", checks=("gradgradcheck",), expect=Expectation(checks={"gradcheck": FAIL}))
    assert expected_verdict(only) is PASS


def test_a_case_that_could_not_be_run_is_expected_only_where_an_error_is() -> None:
    assert not is_as_expected(case("Square"), ERROR, [])
    assert not is_as_expected(case("Square", expect=Expectation(checks={"gradcheck": FAIL})), ERROR, [])
    assert is_as_expected(case("Square", expect=Expectation(verdict=ERROR)), ERROR, [])
