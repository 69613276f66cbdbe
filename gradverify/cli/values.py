"""What the words after an option mean: numbers and choices, refused in words of our own."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import typer

MOST = 2**63 - 1  # as in specs
_LONGEST = 60  # characters of a value that a message repeats

C = TypeVar("C", bound=StrEnum)


def whole(least: int) -> Callable[[str], int]:
    """Return the reader of a whole number from `least` on."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= MOST:
            raise _refused(f"a whole number from {least} {'on' if number < least else f'to {MOST}'}", text)
        return number

    return read


def seconds(text: str) -> float:
    """Return a number of seconds; how many there may be is judged with the rest of the request."""
    try:
        return float(text)
    except ValueError:
        raise _refused("a number of seconds", text) from None


def file(text: str) -> Path:
    """Return a file; that it can be read or written is judged where that is done."""
    if not text:
        raise _refused("the name of a file", text)
    return Path(text)


def choice(kind: type[C]) -> Callable[[str], C]:
    """Return the reader of one of the words of an enumeration."""

    def read(text: str) -> C:
        if text not in tuple(kind):
            raise _refused(f"one of {', '.join(kind)}", text)
        return kind(text)

    return read


def _refused(expected: str, text: str) -> typer.BadParameter:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return typer.BadParameter(f"expected {expected}, found {shown!r}")
