"""What a check cost, and how near it came, in words."""

from __future__ import annotations

from gradverify.report.checks_text import check_cost
from gradverify.result import CheckResult, Method, Verdict


def test_random_sums_say_nothing_of_single_entries() -> None:
    probed = CheckResult(
        check="gradcheck", verdict=Verdict.PASS, method=Method.PROBED, entries=10**7, detection_limit=1e-5
    )
    assert check_cost(probed) == "probed, detects a relative error of 1e-5"


def test_the_largest_error_is_said_where_entries_were_judged() -> None:
    dense = CheckResult(
        check="gradcheck", verdict=Verdict.PASS, method=Method.DENSE, entries=9, max_error=1e-12, max_error_bar=2e-12
    )
    assert check_cost(dense) == "dense, largest error 1e-12 with error bars up to 2e-12"
