"""Plain values as YAML in flow style, `{values: [[1.0, 2.0]]}`, such that they are read back exactly."""

from __future__ import annotations

import math
import re
from typing import Any

from gradverify.spec.scalar import MAX_WHOLE, MIN_WHOLE, text_scalar

_WIDTH = 100  # columns
# Text that is itself in flow style, without quotes; a colon joins words as in `ops/relu.py:F`.
_PLAIN = re.compile(r"[A-Za-z0-9_./(](?:[\w ./()+=*%<>-]|:(?=\w))*(?<! )")


def flow(value: Any) -> str:
    """Return a value on one line; raises ValueError for what YAML has no word for."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _whole(int(value))
    if isinstance(value, float):
        return _real(float(value))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)}: {flow(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    raise ValueError(f"YAML has no word for a value of type {type(value).__name__}")


def wrapped(value: Any, column: int, after: int = 0) -> str:
    """Return a value that begins at a column, counted from 0, in lines of at most 100 columns where it can be broken.

    Lines after the first begin below the first entry of the list or mapping that they go on with. `after` is the number
    of characters that follow the value on its last line.
    """
    line = flow(value)
    if column + len(line) + after <= _WIDTH or not value or not isinstance(value, dict | list):
        return line
    pairs = value.items() if isinstance(value, dict) else [(None, entry) for entry in value]
    text, at = line[0], column + 1
    for number, (name, entry) in enumerate(pairs, start=1):
        key = "" if name is None else f"{_key(name)}: "
        follows = 1 if number < len(value) else after + 1  # a comma, or what closes
        if number > 1:
            fits = at + 2 + len(key) + len(flow(entry)) + follows <= _WIDTH
            text, at = (f"{text}, ", at + 2) if fits else (f"{text},\n{' ' * (column + 1)}", column + 1)
        piece = key + wrapped(entry, at + len(key), follows)
        text += piece
        at = len(piece) - piece.rfind("\n") - 1 if "\n" in piece else at + len(piece)
    return text + line[-1]


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key must be text, found one of type {type(key).__name__}")
    return _text(key)


def _text(text: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("YAML has no word for text with surrogates")
    return text_scalar(text, _PLAIN)


def _whole(value: int) -> str:
    if not MIN_WHOLE <= value <= MAX_WHOLE:
        raise ValueError("a whole number has more than 64 bits")
    return str(value)


def _real(value: float) -> str:
    """Return the shortest number that is this one; YAML 1.1 wants a point in it, and a sign in its exponent."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{int(exponent):+d}" if e else mantissa
