"""Write to stdout and stderr."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
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

_LINES_PER_WRITE = 500  # lines per write
_MIN_WIDTH = 40  # columns; a narrower terminal is treated as this wide
# Replacements for characters that ASCII and other small encodings lack.
_SPELLED = str.maketrans(
    {getattr(UNICODE, name): getattr(ASCII, name) for name in Glyphs.__slots__ if name != "blank"}
    | {"—": "-", "–": "-", "·": "*", "×": "x", "≠": "!=", "√": "sqrt", "π": "pi", "½": "1/2"}
    | {"²": "^2", "³": "^3", "⁶": "^6", "ᵀ": "^T", "⟨": "<", "⟩": ">"}
)


class OutputError(GradverifyError):
    """Stdout cannot be written, for example because a disk is full."""


class ColourWish(StrEnum):
    """The user's choice of colour."""

    AUTO = "auto"  # if stdout is a terminal and NO_COLOR is not set
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """The width, characters and colours of stdout."""

    screen: Screen
    colour: Colour


def stdout_terminal(wish: ColourWish = ColourWish.AUTO) -> Terminal:
    """Return the properties of stdout."""
    width = max(shutil.get_terminal_size((80, 24)).columns, _MIN_WIDTH)
    screen = Screen(width=width, glyphs=glyphs_for(getattr(sys.stdout, "encoding", None)))
    return Terminal(screen=screen, colour=Colour.NONE if wish is ColourWish.NEVER else _colour(sys.stdout))


def is_terminal(stream: TextIO) -> bool:
    """True if `stream` is a terminal."""
    return bool(getattr(stream, "isatty", lambda: False)())


def is_pipe(stream: TextIO) -> bool:
    """True if `stream` is a pipe; its reader may write to the same terminal as this process."""
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def show(rows: Iterable[Line], terminal: Terminal) -> None:
    """Print lines, until the reader of stdout closes it."""
    texts = iter(paint(rows, terminal.colour))
    while block := "".join(islice(texts, _LINES_PER_WRITE)):
        if not say(block):
            return


def say(text: str) -> bool:
    """Write text to stdout, with replacements for characters it cannot encode. Returns False if stdout is closed."""
    return instruct(_shown(text))


def instruct(text: str) -> bool:
    """Write text that may contain GitHub workflow commands. Returns False if stdout is closed. Raises OutputError."""
    return _written(lambda: sys.stdout.write(_encodable(text, sys.stdout)))


def emit(text: str) -> bool:
    """Write a report for a program to stdout, in UTF-8. Returns False if stdout is closed. Raises OutputError."""
    return _written(lambda: sys.stdout.buffer.write(text.encode()))


def say_error(text: str) -> None:
    """Write text to stderr, with replacements for characters it cannot encode. Errors are ignored."""
    with contextlib.suppress(OSError):
        sys.stderr.write(_encodable(_shown(text), sys.stderr))
        sys.stderr.flush()


def in_github_job() -> bool:
    """True in a GitHub job, which interprets some of the output as workflow commands."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def complain(text: str) -> None:
    """Write a message to stderr."""
    say_error(f"gradverify: {safe(text)}\n")


def print_problems(errors: Iterable[SpecError]) -> None:
    """Print one line per mistake, starting with file:line:column, which editors recognise."""
    for error in errors:
        say_error(f"{safe(str(error))}\n")


def silence_stdout() -> None:
    """Redirect stdout to os.devnull, so that flushing it at exit raises nothing."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):
        return


@contextlib.contextmanager
def stdout_kept_free() -> Iterator[None]:
    """Send to stderr what Python or C writes to stdout, until the block ends. Raises OutputError."""
    _flush_stdout()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _flush_stdout()
        try:
            os.dup2(kept, 1)
            os.close(kept)
        except OSError as error:
            raise OutputError("could not write to standard output: code of a case closed it") from error


def _flush_stdout() -> None:
    """Flush the buffers of Python and C."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(Exception):  # not on every system
        ctypes.CDLL(None).fflush(None)


def _written(write: Callable[[], object]) -> bool:
    try:
        sys.stdout.flush()
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        return False
    except OSError as error:
        silence_stdout()
        raise OutputError(f"could not write to standard output: {error.strerror or error}") from error
    return True


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
