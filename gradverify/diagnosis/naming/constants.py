"""Numbers that people forget or mistype: small rationals, roots, logarithms of small numbers, π, short decimals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

_LARGEST = 10  # of numerators and denominators
_TRANSCENDENTAL = (
    ("ln 2", math.log(2)),
    ("ln 10", math.log(10)),
    ("π", math.pi),
    ("2π", 2 * math.pi),
    ("√π", math.sqrt(math.pi)),
    ("√(2π)", math.sqrt(2 * math.pi)),
    ("e", math.e),
)
_WELL = 1e-4  # relative accuracy: of a hundred numbers one or two are that close to a decimal of three digits
_EXACT = 1e-12  # relative accuracy of what backward computes in float64
_WHOLE = 1000  # from which on integers are too close to each other
_LEAST = 1e-6  # relative accuracy of what backward computes, at best
_OF_DISTANCE = 1e-3  # a factor close to one is recognised by its distance from one


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number with a name."""

    value: float  # positive
    text: str  # 2, 1/3, √5, 1/π
    inverse: str  # what it is one over, "" where that is no simpler
    plain: bool = False  # a decimal, whose name says nothing but its value


def recognise(value: float, accuracy: float, sizes: Iterable[int]) -> Constant | None:
    """Return the simplest constant within a relative `accuracy` of |value|; `sizes` are those of the dimensions."""
    size = abs(value)
    allowed = min(max(accuracy, _LEAST) * size, _OF_DISTANCE * abs(size - 1.0))
    return next((known for known in _constants(sizes) if abs(known.value - size) <= allowed), None)


def as_written(value: float, accuracy: float) -> Constant | None:
    """Return the integer, its inverse or the decimal of few digits within a relative `accuracy` of |value|.

    There are so many of them that one says something only of values that are known well, from one as from zero.
    """
    size = abs(value)
    distance = abs(size - 1.0)
    known_by = max(accuracy, _EXACT) * size
    if accuracy > _WELL or value == 0 or known_by > _WELL * distance:
        return None
    return next((known for known in _short(size) if abs(known.value - size) <= known_by), None)


def number(value: float) -> str:
    """Return the value with six digits, or as many as tell it from one."""
    short = f"{value:.6g}"
    distance = abs(abs(value) - 1.0)
    return short if abs(float(short) - value) <= 1e-3 * distance else f"{value:.12g}"


def _constants(sizes: Iterable[int]) -> Iterator[Constant]:
    for total in range(3, 2 * _LARGEST + 1):
        for below in range(1, total):
            if math.gcd(below, total - below) == 1 and max(below, total - below) <= _LARGEST:
                yield _rational(Fraction(total - below, below))
    large = sorted({size for size in sizes if size > _LARGEST})
    for size in large:
        yield from (_rational(Fraction(size)), _rational(Fraction(1, size)))
    for size in (*range(2, _LARGEST + 1), *large):
        if math.isqrt(size) ** 2 != size:
            yield from _both(f"√{size}", math.sqrt(size))
    for text, value in _TRANSCENDENTAL:
        yield from _both(text, value)
    yield Constant(value=180 / math.pi, text="180/π", inverse="")
    yield Constant(value=math.pi / 180, text="π/180", inverse="180/π")


def _short(size: float) -> Iterator[Constant]:
    """Yield the integer, its inverse and the decimal of few digits that are nearest."""
    for whole, is_inverse in ((size, False), (1 / size, True)):
        if 1 < round(whole) < _WHOLE:
            yield _rational(Fraction(1, round(whole)) if is_inverse else Fraction(round(whole)))
    for decimal in (float(f"{size:.3g}"), 1 + float(f"{size - 1:.1g}")):
        yield Constant(value=decimal, text=number(decimal), inverse="", plain=True)


def _rational(value: Fraction) -> Constant:
    inverse = str(1 / value) if value < 1 else ""
    return Constant(value=float(value), text=str(value), inverse=inverse)


def _both(text: str, value: float) -> Iterator[Constant]:
    yield Constant(value=value, text=text, inverse="")
    yield Constant(value=1 / value, text=f"1/{text}", inverse=text)
