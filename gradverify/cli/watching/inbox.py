"""What happens while `--watch` runs, in the order of its arrival: saves, keys, and the end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

from gradverify.run.interrupts import Interrupts

_WAKE = signal.SIGUSR1 if hasattr(signal, "SIGUSR1") else signal.SIGINT
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Files that were saved, created, renamed or deleted."""

    files: frozenset[Path]  # absolute


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressed:
    """A key."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Ctrl-C, a signal that ends processes, or files that can no longer be watched."""

    why: str = ""  # "" for a wish of the user


Happening = Saved | Pressed | Ended


class Inbox:
    """Passes what happens from other threads to the main thread, and ends the run that it waits for."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Happening] = SimpleQueue()
        self._running: Interrupts | None = None  # of the run that goes on

    def put(self, happening: Happening) -> None:
        """Add what happened, from any thread."""
        self._queue.put(happening)
        signal.pthread_kill(threading.main_thread().ident or 0, _WAKE)

    def take(self) -> list[Happening]:
        """Wait until something has happened, and return all that has."""
        found = [self._queue.get()]
        while True:
            try:
                found.append(self._queue.get_nowait())
            except Empty:
                return found

    @contextmanager
    def ending_runs(self) -> Iterator[Interrupts]:
        """Return interrupts for one run; whatever happens until the block ends, or before it, interrupts the run."""
        self._running = Interrupts()
        try:
            if not self._queue.empty():
                self._running.note()
            yield self._running
        finally:
            self._running = None

    @contextmanager
    def receiving_signals(self) -> Iterator[None]:
        """Turn Ctrl-C and the like into Ended until the block ends. Only in the main thread."""
        heeded = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_end) for number in heeded}
        before[_WAKE] = signal.signal(_WAKE, self._on_wake)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _on_end(self, _number: int, _frame: FrameType | None) -> None:
        self._queue.put(Ended())
        self._on_wake(_number, _frame)

    def _on_wake(self, _number: int, _frame: FrameType | None) -> None:
        if self._running is not None:
            self._running.note()
