"""`gradverify explain`: what a code or a cause means, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated

import typer

from gradverify.catalogue import Section, near, section_of, sections
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.terminal import say

Name = Annotated[str | None, typer.Argument(metavar="[CODE|CAUSE]", help="GV307, missing-mask; all where left out.")]


def explain(name: Name = None) -> ExitCode:
    """Explain a code or a cause: what it means, why it matters, an example and its cure."""
    known = sections()
    if name is None:
        say(_listed(known))
        return ExitCode.OK
    found = section_of(name, known)
    if found is None:
        close = near(name, known)
        hint = f"did you mean {' or '.join(close)}?" if close else "`gradverify explain` lists what there is"
        raise UsageProblem(f"no code or cause {name!r}: {hint}")
    say(f"{found.name} — {found.title}\n\n{found.text}\n")
    return ExitCode.OK


def _listed(known: Sequence[Section]) -> str:
    width = max((len(section.name) for section in known), default=0)
    groups = [
        "\n".join([group, *(f"  {section.name:<{width}}  {section.title}" for section in members)])
        for group, members in groupby(known, key=lambda section: section.group)
    ]
    return "\n\n".join(groups) + "\n"
