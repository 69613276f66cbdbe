"""What a check cost, and how near it came, in words."""

from __future__ import annotations

import pytest

from gradverify.report.checks_text import check_cost, second_opinion
from gradverify.result import AgreesWith, CheckResult, Method, TorchDerivative, Verdict


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (1e-5, "detects a relative error of 1e-5"),
        (1.0, "detects a relative error of 1"),
        (2e27, "may miss any error of some entries"),
    ],
)
def test_random_sums_say_nothing_of_single_entries(limit: float, said: str) -> None:
    probed = CheckResult(
        check="gradcheck", verdict=Verdict.PASS, method=Method.PROBED, entries=10**7, detection_limit=limit
    )
    assert check_cost(probed) == f"probed, {said}"


def test_the_largest_error_is_said_where_entries_were_judged() -> None:
    dense = CheckResult(
        check="gradcheck", verdict=Verdict.PASS, method=Method.DENSE, entries=9, max_error=1e-12, max_error_bar=2e-12
    )
    assert check_cost(dense) == "dense, largest error 1e-12 with error bars up to 2e-12"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, ""),
        (
            TorchDerivative(agrees_with=AgreesWith.NUMERIC, entries=3, difference=2.1e-11),
            "torch's own derivative of the forward agrees with numeric in 3 wrong entries of one output, to 3e-11",
        ),
        (
            TorchDerivative(agrees_with=AgreesWith.ANALYTIC, entries=1, difference=0.0),
            "torch's own derivative of the forward agrees with analytic in the worst entry, exactly:"
            " a part of the forward may be hidden from autograd, as by a detach, or rounding in low precision is alike"
            " in both",
        ),
    ],
)
def test_what_torchs_own_derivative_agrees_with(found: TorchDerivative | None, said: str) -> None:
    assert second_opinion(CheckResult(check="gradcheck", verdict=Verdict.FAIL, torch_derivative=found)) == said
