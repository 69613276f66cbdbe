"""Numbers show the digits that are known, and no others."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradverify.report import numbers

finite = st.floats(allow_nan=False, allow_infinity=False)
bars = st.floats(min_value=1e-300, max_value=1e300)


@pytest.mark.parametrize(
    ("value", "bar", "text"),
    [
        (0.5, 2e-11, "0.5000000000 ± 2e-11"),
        (0.5, 1e-11, "0.50000000000 ± 1e-11"),
        (0.5, 2.1e-11, "0.5000000000 ± 3e-11"),
        (-1234.5678, 0.03, "-1234.6 ± 0.03"),
        (123456.7, 2e3, "1.2e5 ± 2000"),
        (99999.99, 3e-3, "99999.99 ± 0.003"),
        (1e-12, 3e-23, "1.0000000000e-12 ± 3e-23"),
        (1.5e300, 1e290, "1.5000000000e300 ± 1e290"),
        (3e-13, 2e-11, "3e-13 ± 2e-11"),
        (0.0, 2e-11, "0 ± 2e-11"),
        (-0.0, 2e-11, "0 ± 2e-11"),
        (0.1, 0.0, "0.1 ± 0"),
        (1 / 3, 1e-30, "0.33333333333333331 ± 1e-30"),
        (0.5, math.inf, "0.5 ± inf"),
        (0.5, math.nan, "0.5 ± nan"),
        (math.nan, 1.0, "nan"),
        (-math.inf, math.inf, "-inf"),
        (9.9999e-5, 1e-5, "0.0001 ± 1e-5"),
        (5e-324, 5e-324, "5e-324 ± 5e-324"),
    ],
)
def test_value_with_bar(value: float, bar: float, text: str) -> None:
    assert numbers.with_bar(value, bar) == text


def test_fewer_digits_on_a_narrow_screen() -> None:
    assert numbers.with_bar(1 / 3, 2e-11, "+/-", most=5) == "0.33333 +/- 2e-11"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (1e5, "100000"),
        (1e6, "1e6"),
        (1e-4, "0.0001"),
        (1e-5, "1e-5"),
        (0.12345, "0.123"),
        (999.6, "1000"),
        (999999.0, "1e6"),
        (-2.5e-9, "-2.5e-9"),
        (math.inf, "inf"),
    ],
)
def test_compact(value: float, text: str) -> None:
    assert numbers.compact(value) == text


def test_bounds_are_rounded_to_the_safe_side() -> None:
    assert numbers.at_least(1.0001) == "1.1"
    assert numbers.at_least(2e-11, 1) == "2e-11"
    assert numbers.at_most(3.19e-10) == "3.1e-10"
    assert numbers.at_most(0.0) == "0"
    assert numbers.at_least(math.inf) == "inf"


@given(finite, st.integers(1, 17))
def test_compact_names_a_number_of_that_size(value: float, digits: int) -> None:
    read = float(numbers.compact(value, digits))
    assert math.isinf(read) or read == pytest.approx(value, rel=10.0 ** (1 - digits), abs=1e-320)


@given(finite)
def test_bounds_hold(value: float) -> None:
    assert float(numbers.at_least(value, 2)) >= value
    assert float(numbers.at_most(value, 2)) <= value


@given(finite, bars)
def test_shown_value_lies_within_the_bar_or_shows_one_digit(value: float, bar: float) -> None:
    shown, shown_bar = numbers.with_bar(value, bar).split(" ± ")
    assert float(shown_bar) >= bar
    digits = len(re.sub(r"e.*|[-.]", "", shown).lstrip("0"))
    assert digits <= 17
    if 1 < digits < 17:
        assert abs(Decimal(shown) - Decimal(value)) <= 10 * Decimal(bar)  # a float would overflow


@given(finite.filter(bool), st.floats(1e-15, 1e-1))
def test_enough_digits_to_see_a_difference(value: float, share: float) -> None:
    other = value * (1 + share)
    if math.isfinite(other) and abs(value) > 1e-290:
        digits = numbers.digits_to_show(value, abs(other - value))
        assert numbers.compact(value, digits) != numbers.compact(other, digits)


def test_ratio_never_raises() -> None:
    assert numbers.ratio(3.0, 2.0) == 1.5
    assert numbers.ratio(1.0, 0.0) == math.inf
    assert math.isnan(numbers.ratio(0.0, 0.0))


def test_decimal_points_stand_in_one_column() -> None:
    texts = ["1", "12.5", "-0.25 ± 2e-11", "3e-9", "nan"]
    aligned = numbers.align_points(texts)
    assert aligned == ["  1           ", " 12.5         ", " -0.25 ± 2e-11", "  3e-9        ", "nan           "]
    assert numbers.align_points([]) == []


def test_times_too_large_to_add_up_break_nothing() -> None:
    assert numbers.added_up([1e308, 1e308, -1.0]) == math.inf
    assert numbers.added_up([0.5, math.nan, math.inf, 0.25]) == 0.75
    assert numbers.added_up([]) == 0.0
