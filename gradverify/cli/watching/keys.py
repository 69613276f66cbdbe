"""Read single keys from the terminal, in a thread."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradverify.cli.terminal import is_terminal
from gradverify.cli.watching.inbox import Happening, Pressed

KEYS = frozenset(("a", "q", "\n", "\r"))  # the others mean nothing, and end no run


def has_keys() -> bool:
    """True if keys can be read and the screen be redrawn: stdin and stdout are terminals."""
    return sys.stdin is not None and is_terminal(sys.stdin) and is_terminal(sys.stdout)


@contextmanager
def keys_read(put: Callable[[Happening], None]) -> Iterator[None]:
    """Report the keys of KEYS until the block ends, without echo. Nothing is read if there is no terminal."""
    if not has_keys():
        yield
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    stop_read, stop_write = os.pipe()
    thread = threading.Thread(target=_read, args=(terminal, stop_read, put), daemon=True)
    try:
        tty.setcbreak(terminal)  # Ctrl-C stays a signal
        thread.start()
        yield
    finally:
        os.close(stop_write)  # the end of the pipe wakes the thread
        if thread.ident is not None:
            thread.join()
        os.close(stop_read)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _read(terminal: int, stop: int, put: Callable[[Happening], None]) -> None:
    while True:
        ready, _, _ = select.select([terminal, stop], [], [])
        if stop in ready:
            return
        try:
            data = os.read(terminal, 64)
        except OSError:  # the terminal is gone
            return
        if not data:
            return
        for key in data.decode("utf-8", "replace"):
            if key in KEYS:
                put(Pressed(key=key))
