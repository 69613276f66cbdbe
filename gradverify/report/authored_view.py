"""The specs that `init` wrote, and the functions that no spec names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gradverify.report.lines import DIM, GOOD, WARN, Line, cells, line, pad, span, widest
from gradverify.report.safe import fold, safe
from gradverify.report.screen import Screen
from gradverify.report.words import counted

_GAP = "  "
_INDENT = 4  # columns


class State(StrEnum):
    """What became of a function's spec."""

    WRITTEN = "written"
    DRAFT = "draft"
    EXISTS = "exists"  # its file was there before, and stays as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoredRow:
    """A function and its spec."""

    function: str  # as a spec names it
    file: str
    state: State
    about: str  # the inputs, or why it is a draft


def authored_rows(rows: Sequence[AuthoredRow]) -> list[Line]:
    """Return a line per function with tabs between its columns: for other programs."""
    return [line("\t".join((safe(row.function), row.state, safe(row.file), safe(row.about)))) for row in rows]


def authored_table(rows: Sequence[AuthoredRow], screen: Screen) -> list[Line]:
    """Return two lines or more per function: its name and file, and below them its inputs or the reason."""
    width = widest(safe(row.function) for row in rows)
    lines: list[Line] = []
    for row in rows:
        badge = span(pad(row.state, len(State.WRITTEN)), {State.WRITTEN: GOOD, State.DRAFT: WARN}.get(row.state, DIM))
        function, file = safe(row.function), safe(row.file)
        if len(State.WRITTEN) + width + cells(file) + 2 * len(_GAP) <= screen.width:
            lines.append(line(badge, _GAP, pad(function, width), _GAP, span(file, DIM)))
        else:
            lines += [line(badge, _GAP, function), line(" " * _INDENT, span(file, DIM))]
        lines += [line(" " * _INDENT, span(text, DIM)) for text in _folded(row.about, screen.width - _INDENT)]
    return lines


def authored_total(rows: Sequence[AuthoredRow]) -> str:
    """Return "9 functions: 7 specs written, 2 of them drafts; 1 exists"."""
    count = {state: sum(row.state is state for row in rows) for state in State}
    written = count[State.WRITTEN] + count[State.DRAFT]
    drafts = f", {count[State.DRAFT]:,} of them {'a draft' if count[State.DRAFT] == 1 else 'drafts'}"
    text = f"{counted(len(rows), 'function')}: {counted(written, 'spec')} written"
    text += drafts if count[State.DRAFT] else ""
    return text + (f"; {count[State.EXISTS]:,} had a file already" if count[State.EXISTS] else "")


def inputs_in_brief(inputs: Mapping[str, Any]) -> str:
    """Return "x [3, 4], clip 1.5"."""
    return ", ".join(f"{name} {_in_brief(value)}" for name, value in inputs.items())


def _folded(text: str, width: int) -> list[str]:
    return fold(text, width) if text else []


def _in_brief(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(_in_brief, value))})" if any(isinstance(each, dict) for each in value) else str(value)
    if isinstance(value, dict) and "factory" in value:
        return str(value["factory"]).rpartition(":")[2]
    if isinstance(value, dict) and "shape" in value:
        whole = value.get("dtype") or ("integers" if "integers" in value else "")
        return f"[{', '.join(map(str, value['shape']))}]{f' {whole}' if whole else ''}"
    if isinstance(value, dict):
        return ", ".join(f"{each}" for each in value.values())
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if value is None or isinstance(value, bool)
        else str(value)
    )
