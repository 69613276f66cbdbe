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
    known, columns = sections(), get_terminal_size().columns
    if name is None:
        say(_listed(known, columns))
        return ExitCode.OK
    found = section_of(name, known)
    if found is None:
        close = near(name, known)
        hint = f"did you mean {' or '.join(close)}?" if close else "`gradverify explain` lists what there is"
        raise UsageProblem(f"no code or cause {name!r}: {hint}")
    say(f"{found.name} — {found.title}\n\n{_wrapped(found.text, columns)}\n")
    return ExitCode.OK


def _wrapped(text: str, width: int) -> str:
    """Return Markdown with its paragraphs and lists wrapped at `width`; code is unchanged."""
    blocks, code = [], False
    for block in text.split("\n\n"):
        fences = block.count("```")
        plain = not code and not fences and not block.startswith((" ", "|", "*", "#"))
        blocks.append(_filled(block, min(width, _WIDEST)) if plain else block)
        code ^= fences % 2 == 1
    return "\n\n".join(blocks)


def _filled(block: str, width: int) -> str:
    """Return a paragraph, or the items of a list, wrapped at `width`."""
    if not block.startswith("- "):
        return fill(" ".join(block.split()), width)
    items = (" ".join(item.split()) for item in f"\n{block}".split("\n- ")[1:])
    return "\n".join(fill(item, width, initial_indent="- ", subsequent_indent="  ") for item in items)


def _listed(known: Sequence[Section], width: int) -> str:
    names = max((len(section.name) for section in known), default=0)
    groups = [
        "\n".join([group, *(_row(section, names, width) for section in members)])
        for group, members in groupby(known, key=lambda section: section.group)
    ]
    return "\n\n".join(groups) + "\n"


def _row(section: Section, names: int, width: int) -> str:
    start = f"  {section.name:<{names}}  "
    return fill(section.title, width, initial_indent=start, subsequent_indent=" " * len(start))
