"""What a recording says at its end, on stderr or in pytest's summary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gradverify.author.recording.groups import LeftOut
from gradverify.author.recording.specs import Recorded, SpecWritten

NOTHING = "no hand-written Function was called"


def recorded_rows(recorded: Recorded, output: Path) -> list[str]:
    """Return lines: a sentence, the files that were written, and what could not be recorded."""
    rows = [_sentence(recorded, output)]
    names = [_shown(file.path) for file in recorded.files]
    width = max(map(len, names), default=0)
    for name, file in zip(names, recorded.files, strict=True):
        rows.append(f"  {name:{width}}  {_about(file)}")
        rows += [f"    {_draft(file.drafts.count(reason))}: {reason}" for reason in dict.fromkeys(file.drafts)]
    rows += [f"  left out: {_left_out(each)}" for each in recorded.left_out]
    rows += [f"  {message}" for message in recorded.lost]
    return rows


def _sentence(recorded: Recorded, output: Path) -> str:
    if not recorded.calls:
        return NOTHING
    what = f"{_counted(recorded.calls, 'call')} of {_counted(recorded.subjects, 'Function')}"
    where = f", specs in {_shown(output)}" if recorded.files else ", no spec"
    return f"recorded {what}{where}"


def _about(file: SpecWritten) -> str:
    drafts = f", {_counted(len(file.drafts), 'draft')}" if file.drafts else ""
    there = "" if file.is_new else ", was there already"
    return f"{_counted(file.cases, 'case')} from {_counted(file.calls, 'call')}{drafts}{there}"


def _draft(number: int) -> str:
    return "draft" if number == 1 else f"{number} drafts"


def _left_out(each: LeftOut) -> str:
    return f"{each.subject.module}:{each.subject.name}, {_counted(each.calls, 'call')}: {each.reason}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _shown(path: Path) -> str:
    shown = os.path.relpath(path)
    return str(path) if shown.startswith(os.pardir) else shown


def with_prefix(rows: Sequence[str]) -> str:
    """Return the lines as a message of gradverify."""
    return "".join(f"{'' if number else 'gradverify: '}{row}\n" for number, row in enumerate(rows))
