"""Numbers with a name: small rationals, roots, logarithms, π, short decimals, and the scalars of a function."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from gradverify.core.tuning import SMALL_PART
from gradverify.diagnosis.naming.variables import named_tensors
from gradverify.diagnosis.tuning import EQUAL_ENTRIES, EXACT
from gradverify.evidence import WrongBlock

_LARGEST = 10  # numerator, denominator and radicand
_TRANSCENDENTAL = (
    ("ln 2", math.log(2)),
    ("ln 10", math.log(10)),
    ("π", math.pi),
    ("2π", 2 * math.pi),
    ("√π", math.sqrt(math.pi)),
    ("√(2π)", math.sqrt(2 * math.pi)),
    ("e", math.e),
)
_WELL = 1e-4  # worst relative accuracy: one or two in a hundred numbers are that close to one of three digits
_WHOLE = 1000  # upper limit of recognised integers: the relative distance of larger ones is too small
_LEAST = 1e-6  # relative: a factor is never taken as more accurate when compared with known constants or scalars
_OF_DISTANCE = 1e-3  # of |factor - 1|: largest deviation, so that factors close to one are not all taken as one
_COMMON = (0.0, 0.5, 1.0, 2.0)  # magnitudes too common to be evidence for a scalar of the function
_POWERS = (1, -1, 2, -2)  # of such a scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number with a name."""

    value: float  # positive, unless it is a power of a scalar
    text: str  # 2, 1/3, √5, 1/π
    reciprocal: str  # the text of its reciprocal, "" if that is not simpler
    is_decimal: bool = False  # a decimal number, with no other meaning than its value


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarPower(Constant):
    """A power of a scalar of the function: y, y², 1/y."""

    name: str  # y
    scalar: float  # the value of y


def known_constant(value: float, accuracy: float, sizes: Iterable[int] = ()) -> Constant | None:
    """Return the simplest constant within a relative `accuracy` of |value|, None if there is none.

    `sizes` are the sizes of tensor dimensions, which count as constants as well.
    """
    size, allowed = abs(value), allowed_distance(abs(value), accuracy)
    constants = _constants(tuple(sorted({size for size in sizes if size > _LARGEST})))
    return next((known for known in constants if abs(known.value - size) <= allowed), None)


def allowed_distance(size: float, accuracy: float = 0.0) -> float:
    """Return how far a factor, known to a relative `accuracy`, may be from the number that it is meant to be."""
    return min(max(accuracy, _LEAST) * size, _OF_DISTANCE * abs(size - 1.0))


def short_number(value: float, accuracy: float) -> Constant | None:
    """Return the integer, its reciprocal or the short decimal within a relative `accuracy` of |value|.

    These numbers are dense, so a match means little unless both the value and its distance from one are known well.
    Otherwise the result is None.
    """
    size = abs(value)
    distance = abs(size - 1.0)
    allowed = max(accuracy, EXACT) * size
    if accuracy > _WELL or value == 0 or allowed > _WELL * distance:
        return None
    return next((known for known in _short(size) if abs(known.value - size) <= allowed), None)


def number_text(value: float) -> str:
    """Return the value with six significant digits, or with twelve if six blur its distance from one."""
    short = f"{value:.6g}"
    distance = abs(abs(value) - 1.0)
    return short if abs(float(short) - value) <= 1e-3 * distance else f"{value:.12g}"


def measured_text(value: float, accuracy: float) -> str:
    """Return a measured value with the digits that its relative accuracy supports, as "about 0.5" if these are few."""
    if accuracy <= _WELL:
        return number_text(value)
    digits = math.ceil(-math.log10(accuracy)) if accuracy < 1 else 1
    while abs(float(f"{value:.{digits}g}") - value) > SMALL_PART * abs(abs(value) - 1.0):
        digits += 1
    return f"about {value:.{digits}g}"


def common_value(values: Tensor, tolerance: float) -> float | None:
    """Return the median of the values (k,) if all are within a relative tolerance of it; None if not, or if empty."""
    middle = float(values.median()) if len(values) else math.nan
    return middle if bool(((values - middle).abs() <= tolerance * abs(middle)).all()) and len(values) else None


def cotangents_in_words(multiples: Tensor) -> str | None:
    """Return "cotangent", or "3 × cotangent", if all multiples (k,) are one number but zero; None if not."""
    multiple = common_value(multiples, EQUAL_ENTRIES)
    return multiple_in_words(multiple, "cotangent") if multiple else None


def multiple_in_words(factor: float, what: str, accuracy: float = 0.0) -> str:
    """Return the factor, known to a relative accuracy, times `what`: "numeric", "-numeric" or "2 × numeric"."""
    signs = {1.0: "", -1.0: "-"}
    return f"{signs[factor]}{what}" if factor in signs else f"{measured_text(factor, accuracy)} × {what}"


@lru_cache(maxsize=64)
def _constants(large: tuple[int, ...]) -> tuple[Constant, ...]:
    """Return the known constants: rationals by numerator plus denominator, then sizes above _LARGEST, roots, others."""
    small = range(1, _LARGEST + 1)
    pairs = sorted(product(small, small), key=lambda pair: (sum(pair), -pair[0]))
    rationals = [Fraction(*pair) for pair in pairs if math.gcd(*pair) == 1 and pair != (1, 1)]
    rationals += [rational for size in large for rational in (Fraction(size), Fraction(1, size))]
    irrationals = [(f"√{size}", math.sqrt(size)) for size in (*small, *large) if math.isqrt(size) ** 2 != size]
    others = [constant for text, value in (*irrationals, *_TRANSCENDENTAL) for constant in _both(text, value)]
    degrees = Constant(value=180 / math.pi, text="180/π", reciprocal="")
    radians = Constant(value=math.pi / 180, text="π/180", reciprocal="180/π")
    return (*map(_rational, rationals), *others, degrees, radians)


def _short(size: float) -> Iterator[Constant]:
    """Yield the nearest integer, reciprocal of an integer, and decimals of few digits."""
    for whole, is_inverse in ((size, False), (1 / size, True)):
        if whole < _WHOLE and 1 < round(whole) < _WHOLE:  # the reciprocal of a tiny number is infinite
            yield _rational(Fraction(1, round(whole)) if is_inverse else Fraction(round(whole)))
    for decimal in (float(f"{size:.3g}"), 1 + float(f"{size - 1:.1g}")):
        yield Constant(value=decimal, text=number_text(decimal), reciprocal="", is_decimal=True)


def _rational(value: Fraction) -> Constant:
    inverse = str(1 / value) if value < 1 else ""
    return Constant(value=float(value), text=str(value), reciprocal=inverse)


def _both(text: str, value: float) -> Iterator[Constant]:
    """Yield a constant and its reciprocal."""
    yield Constant(value=value, text=text, reciprocal="")
    yield Constant(value=1 / value, text=f"1/{text}", reciprocal=text)


def scalar_power(block: WrongBlock, factor: float, accuracy: float) -> ScalarPower | None:
    """Return the power of a scalar that a factor is, up to the sign, within a relative `accuracy`.

    Returns None if no scalar fits, or several do, or the factor is not known well enough.
    """
    allowed = max(accuracy, _LEAST)
    if allowed > _WELL:
        return None
    scalars = [(name, value) for name, value in dict(_numbers(block)).items() if abs(value) not in _COMMON]
    powers = (_power(name, value, power) for name, value in scalars for power in _POWERS)
    found = [each for each in powers if abs(abs(each.value) - abs(factor)) <= allowed * abs(factor)]
    return found[0] if len(found) == 1 else None


def _power(name: str, scalar: float, power: int) -> ScalarPower:
    """Return a power of a scalar; it is infinite where Python's own operator raises OverflowError."""
    value = float(torch.tensor(scalar, dtype=torch.float64).pow(power))
    words = name if abs(power) == 1 else f"{name}²"
    text, inverse = (words, f"1/{words}") if power > 0 else (f"1/{words}", words)
    return ScalarPower(value=value, text=text, reciprocal=inverse if abs(value) < 1 else "", name=name, scalar=scalar)


def _numbers(block: WrongBlock) -> Iterator[tuple[str, float]]:
    """Yield the names and values of all real scalars among the arguments, inputs and outputs."""
    for entry in block.backward.problem.bound:
        if not isinstance(entry.value, Tensor):
            yield entry.name, entry.value
    for name, tensor in named_tensors(block):
        if tensor.numel() == 1:
            yield name, float(tensor)
