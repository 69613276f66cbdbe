"""Text from specs, targets and exceptions in Markdown: it shows as it is, and nothing in it is obeyed."""

from __future__ import annotations

import re

from gradverify.report.safe import safe

_SPECIAL = re.compile(r"([\\`*_\[\]~$])")  # what stands at the start of a line is always a word of ours
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
_ADDRESS = re.compile(r"://|\bwww\.", re.IGNORECASE)
_MENTION = re.compile(r"@(?=\w)")
_TICKS = re.compile("`+")


def prose(text: str) -> str:
    """Return text as one line of Markdown without any markup, link or mention."""
    shown = _SPECIAL.sub(r"\\\1", "".join(_HTML.get(character, character) for character in safe(text)))
    shown = _ADDRESS.sub(lambda match: match[0].replace(":", "&#58;").replace(".", "&#46;"), shown)
    return _MENTION.sub("@<!-- -->", shown)


def code(text: str) -> str:
    """Return text as a code span, which may stand in a table."""
    shown = safe(text)
    if "|" in shown:  # no escape of a bar is read alike by all readers of tables
        return f"<code>{prose(shown)}</code>"
    fence = "`" * (1 + _longest_ticks(shown))
    edge = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{edge}{shown or ' '}{edge}{fence}"


def block(text: str) -> list[str]:
    """Return text as the lines of a code block."""
    rows = [safe(row) for row in text.expandtabs(4).splitlines()]
    fence = "`" * max(3, 1 + _longest_ticks("\n".join(rows)))
    return [f"{fence}text", *rows, fence]


def _longest_ticks(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)
