"""Text from specs, targets and exceptions, made safe to show: it may hold anything."""

from __future__ import annotations

from gradverify.report.lines import cells

_GLUED = ("±", "+/-", "=")  # a number and its error bar stay on one line
_UNITS = frozenset(("B", "KiB", "MiB", "GiB", "TiB", "s", "ms", "%"))  # so do a number and its unit


def safe(text: str) -> str:
    """Return `text` as one line, with everything that could steer a terminal written as an escape."""
    return text if text.isprintable() else "".join(map(_visible, text))


def fold(text: str, width: int) -> list[str]:
    """Break safe text at blanks into lines of at most `width` columns; a longer word stays whole."""
    folded: list[str] = []
    for paragraph in text.expandtabs(4).splitlines() or [""]:
        folded += _fold_paragraph(safe(paragraph), width)
    return folded


def shortened(text: str, width: int, ellipsis: str) -> str:
    """Return `text` cut at a blank to fit `width` columns, the cut marked by `ellipsis`."""
    if cells(text) <= width:
        return text
    kept = ""
    for word in text.split(" "):
        longer = f"{kept} {word}" if kept else word
        if cells(longer) + 1 + cells(ellipsis) > width:
            break
        kept = longer
    return f"{kept} {ellipsis}" if kept else ellipsis


def _fold_paragraph(paragraph: str, width: int) -> list[str]:
    start = paragraph[: len(paragraph) - len(paragraph.lstrip(" "))]  # tracebacks keep their shape
    rows, row = [], start
    for word in _words(paragraph):
        longer = f"{row} {word}" if row.strip() else row + word
        if row.strip() and cells(longer) > width:
            rows.append(row)
            longer = start + word
        row = longer
    return [*rows, row]


def _words(paragraph: str) -> list[str]:
    words: list[str] = []
    glue = False
    for word in paragraph.split():
        if words and (glue or word in _GLUED or _is_unit_of(word, words[-1])):
            words[-1] = f"{words[-1]} {word}"
        else:
            words.append(word)
        glue = word in _GLUED
    return words


def _is_unit_of(word: str, number: str) -> bool:
    return number[-1].isdigit() and word.rstrip(".,:;)") in _UNITS


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
