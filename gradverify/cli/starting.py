"""Ctrl-C during start-up, when an import or a library would end with a traceback, or silently."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process at once. No effect if SIGINT is ignored or has another handler."""
    _exchange(signal.default_int_handler, _end)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    _exchange(_end, signal.default_int_handler)


def _exchange(before: object, after: object) -> None:
    if signal.getsignal(signal.SIGINT) is before:
        with suppress(ValueError):  # raised in other threads than the main thread, which get no signals
            signal.signal(signal.SIGINT, after)  # type: ignore[arg-type]


def _end(_number: int, _frame: FrameType | None) -> None:
    """Print one line and exit. An exception could be swallowed by an import; nothing was written yet.

    A server that was started early ends by itself, when it finds that this process has.
    """
    with suppress(OSError):
        os.write(2, b"gradverify: interrupted\n")
    os._exit(130)
