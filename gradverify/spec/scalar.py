"""What a plain YAML scalar means: YAML 1.2's core schema, with every number read as the number it looks like.

YAML 1.1, which PyYAML follows, reads `1e-6` as text, `no` as false, `1:30` as 90 and `010` as 8.
"""

from __future__ import annotations

import math
import re

Scalar = None | bool | int | float | str

_DIGITS = "[0-9]+(?:_[0-9]+)*"
_WHOLE = re.compile(rf"[-+]?{_DIGITS}")
_BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_REAL = re.compile(rf"[-+]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}


MIN_WHOLE, MAX_WHOLE = -(2**63), 2**64 - 1  # whole numbers that are read


class UnreadableScalarError(ValueError):
    """A number that no machine type holds."""


def resolve(text: str) -> Scalar:
    """Return the value of a plain scalar; raises UnreadableScalarError."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return _whole(text.replace("_", ""), 10)
    if _BASED.fullmatch(text):
        return _whole(text, 0)
    if _REAL.fullmatch(text):
        return _real(text.replace("_", ""))
    if _INFINITE.fullmatch(text):
        return -math.inf if text.startswith("-") else math.inf
    return text


def text_scalar(text: str, plain: re.Pattern[str]) -> str:
    """Return text as a scalar: as it is if it matches `plain` and is read back as the same text, else in quotes."""
    return text if plain.fullmatch(text) and _stays_text(text) else f'"{"".join(map(_quoted, text))}"'


def _stays_text(text: str) -> bool:
    try:
        return resolve(text) == text
    except UnreadableScalarError:
        return False


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _whole(text: str, base: int) -> int:
    # Python refuses to read thousands of digits; leading zeros are no digits of the number.
    number = int(text, base) if len(text) < 100 else 2**64
    if not MIN_WHOLE <= number <= MAX_WHOLE:
        raise UnreadableScalarError("a whole number of more than 64 bits")
    return number


def _real(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise UnreadableScalarError("a number larger than a 64-bit float holds")
    return number
