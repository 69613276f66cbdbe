"""The screen this process writes to."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TextIO

from gradverify.errors import GradverifyError, SpecError
from gradverify.report.ci.github import inert
from gradverify.report.lines import Line
from gradverify.report.paint import Colour, paint
from gradverify.report.safe import safe
from gradverify.report.screen import ASCII, UNICODE, Glyphs, Screen, glyphs_for

_AT_ONCE = 500  # lines per write
_NARROWEST = 40  # columns; below this nothing can be laid out
# Signs in sentences of checks and explanations, and what stands for them where the encoding is a small one.
_SPELLED = str.maketrans(
    {getattr(UNICODE, name): getattr(ASCII, name) for name in Glyphs.__slots__ if name != "blank"}
    | {"—": "-", "–": "-", "·": "*", "×": "x", "≠": "!=", "√": "sqrt", "π": "pi", "½": "1/2"}
    | {"²": "^2", "³": "^3", "⁶": "^6", "ᵀ": "^T", "⟨": "<", "⟩": ">"}
)


class OutputError(GradverifyError):
    """Stdout takes nothing more: a disk is full, say."""


class ColourWish(StrEnum):
    """What the user said about colour."""

    AUTO = "auto"  # where stdout is a terminal, and NO_COLOR is not set
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """What stdout can show."""

    screen: Screen
    colour: Colour


def stdout_terminal(wish: ColourWish = ColourWish.AUTO) -> Terminal:
    """Look at stdout."""
    width = max(shutil.get_terminal_size((80, 24)).columns, _NARROWEST)
    screen = Screen(width=width, glyphs=glyphs_for(getattr(sys.stdout, "encoding", None)))
    return Terminal(screen=screen, colour=Colour.NONE if wish is ColourWish.NEVER else _colour(sys.stdout))


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person looks at `stream`."""
    return bool(getattr(stream, "isatty", lambda: False)())


def is_pipe(stream: TextIO) -> bool:
    """Tell whether another program reads `stream`, which may show it on the terminal that we write to."""
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def show(rows: Iterable[Line], terminal: Terminal) -> None:
    """Print lines; a reader that has gone away ends the output, not the command."""
    texts = iter(paint(rows, terminal.colour))
    while block := "".join(islice(texts, _AT_ONCE)):
        if not say(block):
            return


def say(text: str) -> bool:
    """Write text to stdout as well as its encoding allows; False when nobody reads it any more."""
    return instruct(_shown(text))


def instruct(text: str) -> bool:
    """Write what a program that reads stdout may obey; False when nobody reads it any more. Raises OutputError."""
    try:
        sys.stdout.write(_encodable(text, sys.stdout))
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
        return False
    except OSError as error:
        hush()
        raise OutputError(f"could not write to standard output: {error.strerror or error}") from error
    return True


def say_error(text: str) -> None:
    """Write text to stderr as well as its encoding allows; where that fails there is nobody left to tell."""
    with contextlib.suppress(OSError):
        sys.stderr.write(_encodable(_shown(text), sys.stderr))
        sys.stderr.flush()


def in_github_job() -> bool:
    """Tell whether a GitHub job reads what we print, and obeys some of it."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def complain(text: str) -> None:
    """Write a message to stderr."""
    say_error(f"gradverify: {safe(text)}\n")


def print_problems(errors: Iterable[SpecError]) -> None:
    """Print each mistake on a line of its own that starts with file:line:column, as editors want it."""
    for error in errors:
        say_error(f"{safe(str(error))}\n")


def hush() -> None:
    """Send the rest of stdout nowhere, so that the interpreter does not complain about it at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return


def _shown(text: str) -> str:
    return inert(text) if in_github_job() else text


def _encodable(text: str, stream: TextIO) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if glyphs_for(encoding) is ASCII:
        text = text.translate(_SPELLED)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _colour(stream: TextIO) -> Colour:
    forced = os.environ.get("FORCE_COLOR", "") != ""
    if os.environ.get("NO_COLOR", "") != "" or not (forced or is_terminal(stream)):
        return Colour.NONE
    from rich.console import Console

    console = Console(file=stream, force_terminal=True)
    if console.legacy_windows or console.color_system is None:
        return Colour.NONE
    return Colour(console.color_system)
