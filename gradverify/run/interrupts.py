"""Ctrl-C, SIGTERM and SIGHUP: counted when they arrive, raised only at places where no result can be lost."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

Waiting = Callable[[], AbstractContextManager[None]]  # context in which KeyboardInterrupt may be raised

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """The interrupts of one run. They are always counted, and raised as KeyboardInterrupt only in `waiting` blocks."""

    def __init__(self) -> None:
        self._count = 0
        self._tolerated = math.inf  # interrupts up to this number are counted without raising

    def __bool__(self) -> bool:
        return self._count > 0

    def note(self, _number: int = signal.SIGINT, _frame: FrameType | None = None) -> None:
        """Count one interrupt. This is the signal handler."""
        self._count += 1
        if self._count > self._tolerated:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Raise KeyboardInterrupt for an interrupt during this block or before it."""
        with self._tolerating(0):
            if self:
                raise KeyboardInterrupt
            yield

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Ignore one more interrupt in this block, since Ctrl-C is often pressed twice, and raise the next."""
        with self._tolerating(self._count + 1):
            yield

    @contextmanager
    def _tolerating(self, most: int) -> Iterator[None]:
        self._tolerated = most
        try:
            yield
        finally:
            self._tolerated = math.inf


@contextmanager
def held_interrupts() -> Iterator[Interrupts]:
    """Handle these signals until the block ends, except signals that this process ignores (nohup).

    In other threads than the main thread no signal arrives, and nothing is changed.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupts.note) for number in heeded}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
