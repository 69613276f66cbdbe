"""What the end of a run says about checks that pass and cannot detect small errors."""

from __future__ import annotations

import pytest
from report_specimens import case, check, report

from gradverify.report.case_detail import DetailOptions
from gradverify.report.lines import to_text
from gradverify.report.screen import Screen
from gradverify.report.terminal import report_lines
from gradverify.result import CheckResult, Verdict


def shown(*limits: float | None, verdict: Verdict = Verdict.PASS) -> str:
    cases = [case(f"a/{limit}", checks=(check(detection_limit=limit, verdict=verdict),)) for limit in limits]
    return to_text(report_lines(report(*cases), Screen(width=200), DetailOptions()))


def test_one_check_with_a_high_limit_is_named() -> None:
    assert "\n- gradcheck of a/0.0021 passes, but may miss relative errors below 0.003\n" in shown(1e-7, 0.0021)


def test_several_checks_with_a_high_limit_are_counted_and_the_worst_named() -> None:
    worst = "gradcheck of a/7.5 may miss any error of some entries (-v: all)"
    assert f"- 2 checks pass with a detection limit above 0.0001; {worst}\n" in shown(1e-7, 0.0021, 7.5)


@pytest.mark.parametrize("limit", [None, 1e-7, 1e-4])
def test_a_limit_of_1e_4_and_less_is_not_mentioned(limit: float | None) -> None:
    assert "may miss" not in shown(limit)


def test_the_limit_of_a_check_that_fails_is_not_mentioned() -> None:
    assert "may miss" not in shown(0.5, verdict=Verdict.FAIL)


def _passing(*checks: CheckResult) -> str:
    passing = case("a/b", verdict=Verdict.PASS, checks=checks)
    return to_text(report_lines(report(passing), Screen(width=200), DetailOptions()))


def test_a_pass_in_which_no_gradient_was_compared_says_why() -> None:
    skipped = check(check="reference", verdict=Verdict.SKIP, message="there is no reference")
    contract = check(check="contract", verdict=Verdict.PASS)
    assert "- 1 case passed without a gradient compared; reference: there is no reference\n" in _passing(
        skipped, contract
    )
    assert "without a gradient" not in _passing(contract)
    assert "without a gradient" not in _passing(skipped, check(check="gradcheck", verdict=Verdict.PASS))
