"""The progress line of a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from gradverify.cli.engine import Listener
from gradverify.cli.listing import Listing
from gradverify.cli.terminal import complain, is_pipe, is_terminal
from gradverify.report.safe import safe
from gradverify.result import CaseResult

_LOG_INTERVAL = 30.0  # seconds between two lines in a log


@dataclass(slots=True, kw_only=True)
class Tally:
    """The numbers of finished and unexpected cases. The fields change during the run."""

    total: int
    done: int = 0
    unexpected: int = 0
    running: list[str] = field(default_factory=list)  # ids, in the order of their start
    trying: set[str] = field(default_factory=set)  # ids of those whose inputs are changed


@contextmanager
def progress(total: int, listing: Listing = Listing.AFTERWARDS) -> Iterator[Listener]:
    """Show progress until the block ends: on a terminal as one line that is removed again, else as lines in a log."""
    tally = Tally(total=total)
    beside = listing is Listing.MEANWHILE and is_pipe(sys.stdout)  # a pipe may write to the same terminal (tee)
    if beside or not is_terminal(sys.stderr):
        yield now_and_then(tally, time.monotonic, complain)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def draw() -> Text:
        return Text(progress_text(tally), no_wrap=True, overflow="ellipsis", end="")

    # no refresh thread: this process starts other processes
    console = Console(stderr=True)
    live = Live(console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def update() -> None:
        with suppress(OSError):  # a closed terminal must not end the run
            live.update(draw(), refresh=True)

    with suppress(OSError):
        live.start()
    try:
        update()
        yield _listener(tally, update)
    finally:
        with suppress(OSError):
            live.stop()


def progress_text(tally: Tally) -> str:
    """Return the text `3/10 done, 1 not as expected; running a, b; trying other inputs of c`."""
    width = len(f"{tally.total:,}")
    checked = ", ".join(name for name in tally.running if name not in tally.trying)
    explored = ", ".join(name for name in tally.running if name in tally.trying)
    parts = [f"{tally.done:>{width},}/{tally.total:,} done", f"{tally.unexpected:,} not as expected"]
    doing = [f"running {safe(checked)}"] if checked else []
    doing += [f"trying other inputs of {safe(explored)}"] if explored else []
    return "; ".join([", ".join(parts), *doing])


def now_and_then(tally: Tally, clock: Callable[[], float], write: Callable[[str], None]) -> Listener:
    """Return a listener that writes the progress at most once per `_LOG_INTERVAL`."""
    last = [clock()]

    def changed() -> None:
        if clock() - last[0] >= _LOG_INTERVAL:
            last[0] = clock()
            write(progress_text(tally))

    return _listener(tally, changed)


def _listener(tally: Tally, changed: Callable[[], None]) -> Listener:
    def started(case_id: str) -> None:
        tally.running.append(case_id)
        changed()

    def trying(case_id: str) -> None:
        tally.trying.add(case_id)
        changed()

    def finished(result: CaseResult) -> None:
        if result.id in tally.running:
            tally.running.remove(result.id)
        tally.done += 1
        tally.unexpected += not result.as_expected
        changed()

    return Listener(started=started, trying=trying, finished=finished)
