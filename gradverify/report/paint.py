"""Lines to text for a terminal with or without colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from gradverify.report.lines import Line, plain

if TYPE_CHECKING:
    from rich.style import Style


class Colour(StrEnum):
    """What colours a terminal has."""

    NONE = "none"
    STANDARD = "standard"  # sixteen
    EIGHT_BIT = "256"
    TRUECOLOR = "truecolor"


def paint(rows: Iterable[Line], colour: Colour) -> Iterable[str]:
    """Yield the lines as text with line breaks, coloured by escape sequences where there is colour."""
    if colour is Colour.NONE:
        yield from (f"{plain(row)}\n" for row in rows)
        return
    brush = _brush(colour)
    for row in rows:
        painted = "".join(brush(part.text, part.style) for part in row)
        yield f"{painted.rstrip(' ')}\n"


def _brush(colour: Colour) -> Callable[[str, str], str]:
    from rich.color import ColorSystem

    system = {
        Colour.STANDARD: ColorSystem.STANDARD,
        Colour.EIGHT_BIT: ColorSystem.EIGHT_BIT,
        Colour.TRUECOLOR: ColorSystem.TRUECOLOR,
    }[colour]

    def brush(text: str, style: str) -> str:
        return _style(style).render(text, color_system=system) if style else text

    return brush


@cache
def _style(definition: str) -> Style:
    from rich.style import Style

    return Style.parse(definition)
