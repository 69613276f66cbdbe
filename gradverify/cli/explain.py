"""`gradverify explain`: print the section of a code or a cause."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated

import typer

from gradverify.catalogue import Section, near, section_of, sections
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.terminal import say

_WIDEST = 100  # columns that a paragraph fills at most

Name = Annotated[str | None, typer.Argument(metavar="CODE|CAUSE", help="GV307, missing-mask; all where left out.")]


def explain(name: Name = None) -> ExitCode:
    """Explain a code or a cause.

    What it means, why it matters, the smallest example and its cure.
    """
    known = sections()
    if name is None:
        say(_listed(known))
        return ExitCode.OK
    found = section_of(name, known)
    if found is None:
        close = near(name, known)
        hint = f"did you mean {' or '.join(close)}?" if close else "`gradverify explain` lists what there is"
        raise UsageProblem(f"no code or cause {name!r}: {hint}")
    say(f"{found.name} — {found.title}\n\n{_wrapped(found.text, get_terminal_size().columns)}\n")
    return ExitCode.OK


def _wrapped(text: str, width: int) -> str:
    """Return Markdown with its paragraphs wrapped at `width`; code and lists are unchanged."""
    blocks, code = [], False
    for block in text.split("\n\n"):
        fences = block.count("```")
        plain = not code and not fences and not block.startswith((" ", "-", "|", "*", "#"))
        blocks.append(fill(" ".join(block.split()), min(width, _WIDEST)) if plain else block)
        code ^= fences % 2 == 1
    return "\n\n".join(blocks)


def _listed(known: Sequence[Section]) -> str:
    width = max((len(section.name) for section in known), default=0)
    groups = [
        "\n".join([group, *(f"  {section.name:<{width}}  {section.title}" for section in members)])
        for group, members in groupby(known, key=lambda section: section.group)
    ]
    return "\n\n".join(groups) + "\n"
