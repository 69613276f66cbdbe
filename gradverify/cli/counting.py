"""A count on stderr, on a terminal, while something is done that prints nothing by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradverify.cli.terminal import is_terminal, say_error

_CLEAR = "\r\x1b[K"  # to the start of the line, and clear it


@contextmanager
def counting() -> Iterator[Callable[[str, int, int], None]]:
    """Return a function that shows "3/10 modules read"; the line is removed when the block ends."""
    if not is_terminal(sys.stderr):
        yield lambda _what, _done, _of: None
        return

    def count(what: str, done: int, of: int) -> None:
        say_error(f"{_CLEAR}{done:,}/{of:,} {what}")

    try:
        yield count
    finally:
        say_error(_CLEAR)
