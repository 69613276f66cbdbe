"""Ctrl-C, SIGTERM and SIGHUP, noted at once and acted on where nothing can be lost."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

Waiting = Callable[[], AbstractContextManager[None]]  # where a block waits, and may be left by KeyboardInterrupt

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """The interrupts of one run: counted everywhere, raised as KeyboardInterrupt only where that was allowed."""

    def __init__(self) -> None:
        self._count = 0
        self._tolerated = math.inf  # how many may come before one is raised

    def __bool__(self) -> bool:
        return self._count > 0

    def note(self, _number: int = signal.SIGINT, _frame: FrameType | None = None) -> None:
        """Count one interrupt; a signal handler."""
        self._count += 1
        if self._count > self._tolerated:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Raise KeyboardInterrupt for an interrupt that comes in this block, or came before it."""
        with self._tolerating(0):
            if self:
                raise KeyboardInterrupt
            yield

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Let one more interrupt pass in this block, as a second tap on the keys, and raise the one after it."""
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
    """Take over these signals until the block ends, but none that this process was told to ignore, as by nohup.

    Elsewhere than in the main thread none arrives.
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
