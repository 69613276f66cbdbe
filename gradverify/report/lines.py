"""Styled text without a terminal: a line is a tuple of spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GOOD = "green"
BAD = "bold red"
WARN = "magenta"  # yellow cannot be read on white
DIM = "dim"
HEAD = "bold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of text with one look."""

    text: str  # printable, no line breaks
    style: str = ""  # a rich style such as "bold red"; a hint only: the text must do without it


Line = tuple[Span, ...]
EMPTY: Line = ()


def span(text: str, style: str = "") -> Span:
    """Return a piece of text with a look."""
    return Span(text=text, style=style)


def line(*parts: str | Span) -> Line:
    """Return a line of its parts."""
    return tuple(part if isinstance(part, Span) else Span(text=part) for part in parts)


def plain(row: Line) -> str:
    """Return a line's text without trailing blanks."""
    return "".join(part.text for part in row).rstrip()


def indented(rows: Iterable[Line], by: int) -> list[Line]:
    """Return the lines moved to the right; empty ones stay empty."""
    return [(Span(text=" " * by), *row) if row else row for row in rows]


def cells(text: str) -> int:
    """Return how many terminal columns `text` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad(text: str, width: int) -> str:
    """Return `text` with blanks up to `width` columns; longer text stays whole."""
    return text + " " * (width - cells(text))


def pad_left(text: str, width: int) -> str:
    """Return `text` moved right to end at column `width`; longer text stays whole."""
    return " " * (width - cells(text)) + text


def widest(texts: Iterable[str]) -> int:
    """Return the columns that the longest text takes."""
    return max(map(cells, texts), default=0)


def to_text(rows: Sequence[Line]) -> str:
    """Return the lines as plain text, each ended by a line break."""
    return "".join(f"{plain(row)}\n" for row in rows)
