"""Numbers as a reader wants them: no digit that is not known, none that is needed left out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

MOST_DIGITS = 17  # a float64 has no more
_FIXED_FROM, _FIXED_BELOW = -4, 6  # decimal exponents written without an exponent


def compact(value: float, digits: int = 3) -> str:
    """Write `value` with at most `digits` significant digits and no trailing zeros."""
    if not math.isfinite(value):
        return _non_finite(value)
    if not value:
        return "0"
    mantissa, exponent = _scientific(value, digits)
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return _fixed(mantissa, exponent) if _FIXED_FROM <= exponent < _FIXED_BELOW else f"{mantissa}e{exponent}"


def at_least(value: float, digits: int = 2) -> str:
    """Write `value` rounded up: a bound, or a ratio that must not look like 1 when it is more."""
    return _bound(value, digits, ROUND_CEILING)


def at_most(value: float, digits: int = 2) -> str:
    """Write `value` rounded down: an allowance that must not look larger than it is."""
    return _bound(value, digits, ROUND_FLOOR)


def with_bar(value: float, bar: float, pm: str = "±", most: int = MOST_DIGITS) -> str:
    """Write `value ± bar` with the digits of the value that the bar leaves certain, at most `most`."""
    if not math.isfinite(value):
        return _non_finite(value)
    if not math.isfinite(bar):
        return f"{compact(value, min(3, most))} {pm} {_non_finite(bar)}"
    if bar <= 0:
        return f"{compact(value, min(most, _repr_digits(value)))} {pm} 0"
    return f"{_to_unit(value, _unit(bar), most)} {pm} {at_least(bar, 1)}"


def digits_to_show(value: float, difference: float) -> int:
    """Return how many significant digits of `value` it takes to see a `difference` of that size."""
    if not (value and difference and math.isfinite(value) and math.isfinite(difference)):
        return 1
    return max(1, min(_exponent(value) - _exponent(difference) + 2, MOST_DIGITS))


def ratio(part: float, whole: float) -> float:
    """Divide without raising: anything over nothing is infinite, nothing over nothing is not a number."""
    if whole:
        return part / whole
    return math.inf if part > 0 else math.nan


def align_points(texts: Iterable[str]) -> list[str]:
    """Pad `texts` on both sides so that their decimal points stand in one column."""
    found = list(texts)
    before = [_digits_before(text) for text in found]
    left = max(before, default=0)
    padded = [" " * (left - size) + text for size, text in zip(before, found, strict=True)]
    width = max(map(len, padded), default=0)
    return [text.ljust(width) for text in padded]


def _bound(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return _non_finite(value)
    # repr is the shortest text that names this float; its exact binary value would round 2e-11 up to 3e-11
    decimal = Context(prec=digits, rounding=rounding).create_decimal(repr(value))
    return compact(float(decimal), digits)


def _to_unit(value: float, unit: int, most: int) -> str:
    """Round to a multiple of 10**unit and keep the zeros up to it: they are known."""
    if not value:
        return "0"
    digits = max(1, min(_exponent(value) - unit + 1, most, MOST_DIGITS))
    mantissa, exponent = _scientific(value, digits)
    fixed = _FIXED_FROM <= exponent < _FIXED_BELOW and digits > exponent  # no zeros that are not known
    return _fixed(mantissa, exponent) if fixed else f"{mantissa}e{exponent}"


def _scientific(value: float, digits: int) -> tuple[str, int]:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return mantissa, int(exponent)


def _fixed(mantissa: str, exponent: int) -> str:
    sign, digits = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    digits = digits.replace(".", "")
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 1, "0")
    whole, rest = digits[: exponent + 1], digits[exponent + 1 :]
    return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}"


def _unit(bar: float) -> int:
    """Return the exponent of the smallest power of ten that is not below the bar."""
    digits = Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(bar)).normalize()
    return digits.adjusted() + (digits.as_tuple().digits != (1,))


def _exponent(value: float) -> int:
    return _scientific(value, MOST_DIGITS - 1)[1]  # with one digit more, 1e-12 is 9.9…e-13


def _repr_digits(value: float) -> int:
    return len(Decimal(repr(value)).as_tuple().digits)


def _non_finite(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _digits_before(text: str) -> int:
    number = text.split(" ", 1)[0]
    for mark in (".", "e"):
        if mark in number and number[-1].isdigit():
            return number.index(mark)
    return len(number)


def added_up(values: Iterable[float]) -> float:
    """Return the sum of the values that are numbers, the same in whatever order; infinite where it is too large."""
    try:
        return math.fsum(value for value in values if math.isfinite(value))
    except OverflowError:
        return math.inf
