"""Text of others as the page shows it: printable, and not longer than anyone reads."""

from __future__ import annotations

from gradverify.report.safe import safe

_LONGEST = 6000  # characters of one message


def one_line(text: str) -> str:
    """Return `text` on one line, with what cannot be printed written as an escape."""
    return safe(" ".join(text.split()))


def readable(text: str) -> str:
    """Return `text` with its lines kept, cut where it is very long."""
    kept, rest = text[:_LONGEST], len(text) - _LONGEST
    lines = "\n".join(map(safe, kept.expandtabs(4).splitlines()))
    return f"{lines}\n… and {rest} characters more" if rest > 0 else lines


def parted(text: str) -> tuple[str, str]:
    """Return the first line of a text and the others."""
    first, _, rest = readable(text).partition("\n")
    return first, rest
