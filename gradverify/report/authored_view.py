"""The specs that `init` wrote, and the functions that no spec names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

from gradverify.report.lines import DIM, GOOD, HEAD, WARN, Line, cells, line, pad, span, widest
from gradverify.report.safe import fold, safe
from gradverify.report.screen import Screen
from gradverify.report.words import counted

_GAP = "  "
_WIDEST = 28  # columns of a name that inputs stand beside
_NARROWEST = 32  # columns for inputs beside a name
_IN_DISPATCHER = "torch.ops."


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
    """Return the functions of each module below its name and the folder of its specs, with their inputs or reasons."""
    width = min(widest(map(_label, rows)), _WIDEST)
    lines: list[Line] = []
    for (module, folder), group in groupby(rows, key=_home):
        lines += _heading(module, folder, screen)
        lines += (entry for row in group for entry in _entry(row, width, screen))
    return lines


def _home(row: AuthoredRow) -> tuple[str, str]:
    return safe(row.function.rpartition(":")[0]), safe(f"{PurePosixPath(row.file).parent}/")


def _label(row: AuthoredRow) -> str:
    """Return the name of a function, and its file if that is called otherwise."""
    name = row.function.rpartition(":")[2]
    name = name.rpartition(".")[2] if name.startswith(_IN_DISPATCHER) else name
    file = PurePosixPath(row.file)
    return safe(name if file.stem == name else f"{name} ({file.name})")


def _heading(module: str, folder: str, screen: Screen) -> list[Line]:
    if cells(module) + len(_GAP) + cells(folder) <= screen.width:
        return [line(span(module, HEAD), _GAP, span(folder, DIM))]
    return [line(span(module, HEAD)), line(_GAP, span(folder, DIM))]


def _entry(row: AuthoredRow, width: int, screen: Screen) -> list[Line]:
    """Return the lines of a function. What is said about it stands beside a name that is not too long, else below."""
    badge = span(pad(row.state, len(State.WRITTEN)), {State.WRITTEN: GOOD, State.DRAFT: WARN}.get(row.state, DIM))
    label, style = _label(row), "" if row.state is State.DRAFT else DIM
    before = len(_GAP) + len(State.WRITTEN) + len(_GAP)
    beside = before + width + len(_GAP)
    if cells(label) > width or screen.width - beside < _NARROWEST:
        below = [line(" " * before, span(text, style)) for text in _folded(row.about, screen.width - before)]
        return [line(_GAP, badge, _GAP, label), *below]
    first, *rest = _folded(row.about, screen.width - beside) or [""]
    return [
        line(_GAP, badge, _GAP, pad(label, width), _GAP, span(first, style)),
        *(line(" " * beside, span(text, style)) for text in rest),
    ]


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
