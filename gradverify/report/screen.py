"""What a screen can show: its width and its signs. Everything drawn is told by one such value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Detail(StrEnum):
    """How much of a run is told."""

    QUIET = "quiet"  # only what is not as expected, and the summary
    BRIEF = "brief"  # cause, fix and command of what is not as expected, the other cases in one line together
    NORMAL = "normal"  # a line for every case, a dozen for each that is not as expected
    VERBOSE = "verbose"  # every finding with its elements, and costs, of every case that has something to say


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The signs that are not ASCII, or what stands for them."""

    tick: str
    cross: str
    plus_minus: str
    ellipsis: str
    arrow: str
    rule: str
    blank: str  # a heatmap cell without an element


UNICODE = Glyphs(tick="✓", cross="✗", plus_minus="±", ellipsis="…", arrow="→", rule="─", blank="·")
ASCII = Glyphs(tick="+", cross="x", plus_minus="+/-", ellipsis="...", arrow="->", rule="-", blank=".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Where a report is drawn."""

    width: int = 80  # columns; numbers and indices are never cut to keep to it
    glyphs: Glyphs = UNICODE


def narrowed(screen: Screen, by: int) -> Screen:
    """Return the screen that is left for lines moved to the right."""
    return replace(screen, width=screen.width - by)


def glyphs_for(encoding: str | None) -> Glyphs:
    """Return the signs that text in `encoding` can hold."""
    signs = "".join(getattr(UNICODE, name) for name in Glyphs.__slots__)
    try:
        signs.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
