"""Parsers of option values, with gradverify's own error messages."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import typer

MAX_INTEGER = 2**63 - 1  # as in specs
_MAX_SHOWN = 60  # characters of a value that a message repeats

C = TypeVar("C", bound=StrEnum)


def whole(least: int) -> Callable[[str], int]:
    """Return the parser of a whole number that is at least `least`."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= MAX_INTEGER:
            raise _refused(f"a whole number from {least} {'on' if number < least else f'to {MAX_INTEGER}'}", text)
        return number

    return read


def seconds(text: str) -> float:
    """Return a number of seconds. `check_request` checks its range."""
    try:
        return float(text)
    except ValueError:
        raise _refused("a number of seconds", text) from None


def file(text: str) -> Path:
    """Return a path. The command checks that it can be read or written."""
    if not text:
        raise _refused("the name of a file", text)
    return Path(text)


def folder(text: str) -> Path:
    """Return the path of a folder. The command checks that it can be written to."""
    if not text:
        raise _refused("the name of a folder", text)
    return Path(text)


def choice(kind: type[C]) -> Callable[[str], C]:
    """Return the parser of a member of an enumeration."""

    def read(text: str) -> C:
        if text not in tuple(kind):
            raise _refused(f"one of {', '.join(kind)}", text)
        return kind(text)

    return read


def _refused(expected: str, text: str) -> typer.BadParameter:
    shown = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
    return typer.BadParameter(f"expected {expected}, found {shown!r}")
