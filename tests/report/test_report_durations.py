"""The slowest cases, slowest first."""

from __future__ import annotations

import math

from report_specimens import case, report

from gradverify.report.durations import duration_lines
from gradverify.report.lines import plain


def listed(most: int, **seconds: float) -> list[str]:
    cases = [case(f"a/{name}/cpu", seconds=value) for name, value in seconds.items()]
    return [plain(row) for row in duration_lines(report(*cases), most)]


def test_the_slowest_come_first_and_equals_keep_their_order() -> None:
    assert listed(3, one=1.0, two=200.0, three=1.0, four=0.5) == [
        "the slowest 3 cases, 100% of the time of all 4:",
        "   200 s  a/two/cpu",
        "  1.00 s  a/one/cpu",
        "  1.00 s  a/three/cpu",
    ]


def test_more_than_there_are() -> None:
    assert listed(9, one=1.0, two=3.0)[0] == "the slowest 2 cases, 100% of the time of all 2:"


def test_nothing_to_list() -> None:
    assert listed(0, one=1.0) == []
    assert listed(3) == []


def test_times_that_are_no_numbers_come_last() -> None:
    assert [row.split()[-1] for row in listed(2, one=math.nan, two=0.0, three=1.0)[1:]] == ["a/three/cpu", "a/one/cpu"]
