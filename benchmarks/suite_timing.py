"""Wall time, processor time and memory of a command and its processes."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

_EVERY = 0.2  # seconds between two measurements of memory


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """The resident memory of a command's processes at one moment, in bytes."""

    seconds: float  # since the start
    parent: int
    server: int  # its largest child, 0 if there is none
    worker: int  # the largest grandchild, 0 if there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times and memory of one command."""

    seconds: float
    processor: float  # seconds of all its processes
    exit_code: int
    memory_samples: tuple[MemorySample, ...]


def timed(words: Sequence[str], folder: Path, copies: int = 1) -> Timing:
    """Run copies of a command in `folder` at once and return their times, and the memory of the first copy."""
    before, started, looks = _processor(), time.perf_counter(), []
    with ExitStack() as running:
        processes = [
            running.enter_context(
                subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            for _ in range(copies)
        ]
        while any(process.poll() is None for process in processes):
            looks.append(_look(processes[0].pid, time.perf_counter() - started))
            time.sleep(_EVERY)
        seconds = time.perf_counter() - started
    exit_code = max(abs(process.returncode) for process in processes)
    return Timing(seconds=seconds, processor=_processor() - before, exit_code=exit_code, memory_samples=tuple(looks))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _look(process: int, seconds: float) -> MemorySample:
    servers = _children(process)
    workers = [worker for server in servers for worker in _children(server)]
    return MemorySample(seconds=seconds, parent=_resident(process), server=_largest(servers), worker=_largest(workers))


def _children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:  # the process has ended
        return []


def _largest(processes: Sequence[int]) -> int:
    return max(map(_resident, processes), default=0)


def _resident(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
