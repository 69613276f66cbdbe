"""Tracebacks of workers that crash or run out of time: faulthandler writes them, the pool reads them afterwards."""

from __future__ import annotations

import faulthandler
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gradverify.paths import shown_path
from gradverify.run.describe_exception import is_own_file, is_user_file

_LEAD = 0.25  # seconds between the traceback and the time limit, at most
_LEAD_SHARE = 0.1  # the same as a share of the time limit, at most
_SHORTEST, _LONGEST = 1e-3, 1e6  # seconds that faulthandler can wait for
_MAX_LINES, _MAX_CHARACTERS = 12, 1200  # of printed output in a message
_HEADER = re.compile(r"(?:Fatal Python error: [^\n]*|Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!)\n")
_THREAD = re.compile(r"(?P<current>Current thread|Thread) 0x[0-9a-f]+ .*")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>[0-9]+) in (?P<name>.*)')
_OTHER = re.compile(r"|  \.\.\.|  <.*>|Extension modules: .*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """The output of a dead worker, taken apart."""

    printed: str  # by user code
    place: str  # `file.py:12 in backward`, the innermost line of user code; "" if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    file: str
    line: str
    name: str


@contextmanager
def crash_dumps_to(output: int, seconds: float) -> Iterator[None]:
    """Write tracebacks to the descriptor `output` if this process crashes, or shortly before `seconds` have passed."""
    process = os.getpid()
    faulthandler.disable()  # user code may have enabled it for another file
    faulthandler.enable(file=output)
    dump_before(output, seconds)
    try:
        yield
    finally:
        if os.getpid() == process:  # a process that user code forked has no such thread
            faulthandler.cancel_dump_traceback_later()


def dump_before(output: int, seconds: float) -> None:
    """Write tracebacks to the descriptor `output` shortly before `seconds` from now; a later call replaces it."""
    wait = seconds - min(_LEAD, _LEAD_SHARE * seconds)
    faulthandler.dump_traceback_later(min(max(wait, _SHORTEST), _LONGEST), file=output)


def crash_report(output: str) -> CrashReport:
    """Split the output of a worker into the text printed by user code and the place in the last traceback."""
    headers = list(_HEADER.finditer(output))
    if not headers:
        return CrashReport(printed=output, place="")
    header = headers[-1]
    lines = output[header.end() :].splitlines(keepends=True)
    rest = next((number for number, text in enumerate(lines) if not _belongs(text.rstrip("\n"))), len(lines))
    frame = _innermost([text.rstrip("\n") for text in lines[:rest]])
    place = f"{shown_path(frame.file)}:{frame.line} in {frame.name}" if frame else ""
    return CrashReport(printed=output[: header.start()] + "".join(lines[rest:]), place=place)


def last_lines(printed: str) -> str:
    """Return the last whole lines of the text, or the end of the last line if it is too long."""
    text = printed.rstrip()
    kept = text[-_MAX_CHARACTERS:]
    if len(kept) < len(text):
        before, _, kept = kept.partition("\n")
        kept = kept or f"…{before[1:]}"
    lines = kept.splitlines()[-_MAX_LINES:]
    begun = next((number for number, line in enumerate(lines) if line.strip()), 0)
    return "\n".join(lines[begun:])


def _belongs(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (_THREAD, _FRAME, _OTHER))


def _innermost(lines: list[str]) -> _Frame | None:
    """Return the innermost frame of user code: of the thread that crashed, else of the case's thread, else of any."""
    threads: list[tuple[int, list[_Frame]]] = []
    for text in lines:
        if head := _THREAD.fullmatch(text):
            threads.append((0 if head["current"].startswith("Current") else 2, []))
        elif (found := _FRAME.fullmatch(text)) and threads:
            frame = _Frame(file=_unescaped(found["file"]), line=found["line"], name=found["name"])
            threads[-1][1].append(frame)
    ranks = [min(rank, 1 if any(is_own_file(frame.file) for frame in frames) else 2) for rank, frames in threads]
    ranked = sorted(range(len(threads)), key=lambda number: ranks[number])
    ordered = (frame for number in ranked for frame in threads[number][1])
    return next((frame for frame in ordered if is_user_file(frame.file)), None)


def _unescaped(file: str) -> str:
    """Decode the backslash escapes that faulthandler writes for characters other than ASCII."""
    if "\\" not in file:
        return file
    try:
        return file.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return file
