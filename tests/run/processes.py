"""Find running processes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def offspring(process: int) -> list[int]:
    """Return the process ids of all descendants of a process, whichever of its threads started them."""
    children: list[int] = []
    with suppress(OSError):  # it has ended meanwhile
        for thread in list(Path(f"/proc/{process}/task").iterdir()):
            with suppress(OSError):  # this thread has
                children += map(int, (thread / "children").read_text().split())
    return [each for child in children for each in (child, *offspring(child))]


def left_over(processes: Iterable[int], patience: float = 5.0) -> list[int]:
    """Return the processes that are still alive after `patience` seconds."""
    deadline = time.monotonic() + patience
    while (living := [process for process in processes if alive(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return living


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"  # a zombie: dead, not yet waited for
