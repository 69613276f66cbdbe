"""Where a worker was when it crashed or ran out of time: written by the worker at that moment, read when it is dead."""

from __future__ import annotations

import faulthandler
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gradverify.run.describe_exception import is_ours, is_users, shown_path

_EARLY = 0.25  # seconds before the time limit, at most
_EARLY_PART = 0.1  # of the time limit, at most
_SHORTEST, _LONGEST = 1e-3, 1e6  # seconds that can be waited for
_MOST_LINES, _MOST_TEXT = 12, 1200  # of what was printed that are told
_HEADER = re.compile(r"(?:Fatal Python error: [^\n]*|Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!)\n")
_THREAD = re.compile(r"(?P<current>Current thread|Thread) 0x[0-9a-f]+ .*")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>[0-9]+) in (?P<name>.*)')
_OTHER = re.compile(r"|  \.\.\.|  <.*>|Extension modules: .*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a dead worker left in its output."""

    printed: str  # by user code
    place: str  # `file.py:12 in backward`, the innermost line of the user's own; "" where it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    file: str
    line: str
    name: str


@contextmanager
def watched(output: int, seconds: float) -> Iterator[None]:
    """Have the frames of this process written to `output` when it crashes, or just before the seconds are over."""
    process = os.getpid()
    faulthandler.disable()  # user code may have put a handler of its own before it
    faulthandler.enable(file=output)
    wait = seconds - min(_EARLY, _EARLY_PART * seconds)
    faulthandler.dump_traceback_later(min(max(wait, _SHORTEST), _LONGEST), file=output)
    try:
        yield
    finally:
        if os.getpid() == process:  # in a copy that user code forked there is no thread to wait for
            faulthandler.cancel_dump_traceback_later()


def last_words(output: str) -> Words:
    """Take apart what user code printed and the frames that were written last."""
    headers = list(_HEADER.finditer(output))
    if not headers:
        return Words(printed=output, place="")
    header = headers[-1]
    lines = output[header.end() :].splitlines(keepends=True)
    rest = next((number for number, text in enumerate(lines) if not _belongs(text.rstrip("\n"))), len(lines))
    frame = _innermost([text.rstrip("\n") for text in lines[:rest]])
    place = f"{shown_path(frame.file)}:{frame.line} in {frame.name}" if frame else ""
    return Words(printed=output[: header.start()] + "".join(lines[rest:]), place=place)


def end_of(printed: str) -> str:
    """Return the last lines of what was printed, whole ones; of a line that is too long by itself the end."""
    text = printed.rstrip()
    kept = text[-_MOST_TEXT:]
    if len(kept) < len(text):
        before, _, kept = kept.partition("\n")
        kept = kept or f"…{before[1:]}"
    lines = kept.splitlines()[-_MOST_LINES:]
    begun = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return "\n".join(lines[begun:])


def _belongs(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (_THREAD, _FRAME, _OTHER))


def _innermost(lines: list[str]) -> _Frame | None:
    """Return the user's innermost frame: of the thread that crashed, else of the one that runs cases, else of any."""
    threads: list[tuple[int, list[_Frame]]] = []
    for text in lines:
        if head := _THREAD.fullmatch(text):
            threads.append((0 if head["current"].startswith("Current") else 2, []))
        elif (found := _FRAME.fullmatch(text)) and threads:
            frame = _Frame(file=_unescaped(found["file"]), line=found["line"], name=found["name"])
            threads[-1][1].append(frame)
    ranks = [min(rank, 1 if any(is_ours(frame.file) for frame in frames) else 2) for rank, frames in threads]
    ranked = sorted(range(len(threads)), key=lambda number: ranks[number])
    ordered = (frame for number in ranked for frame in threads[number][1])
    return next((frame for frame in ordered if is_users(frame.file)), None)


def _unescaped(file: str) -> str:
    """Undo how other letters than those of ASCII are written."""
    if "\\" not in file:
        return file
    try:
        return file.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return file
