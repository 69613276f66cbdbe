"""The processes that come from this one."""

from __future__ import annotations

import ctypes
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def children() -> tuple[int, ...]:
    """Return the process ids of this process's children, dead ones too, where the system says them."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return tuple(found)


def adopt_orphans() -> None:
    """Become the parent of what descends from this process and has lost its own, where the system knows that."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Ask the system to kill this process when its parent ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
