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
from gradverify.report.words import counted
from gradverify.result import CaseResult

_LOG_INTERVAL = 30.0  # seconds between two lines in a log


@dataclass(slots=True, kw_only=True)
class Tally:
    """The numbers of finished and unexpected cases. The fields change during the run."""

    total: int
    done: int = 0
    unexpected: int = 0
    running: dict[str, str] = field(default_factory=dict)  # node by id, in the order of their start; "" for no node
    trying: set[str] = field(default_factory=set)  # ids of those whose inputs are changed
    notes: list[str] = field(default_factory=list)  # sentences to print when the block ends


@contextmanager
def progress(total: int, listing: Listing = Listing.AFTERWARDS) -> Iterator[Listener]:
    """Show progress until the block ends: on a terminal as one line that is removed again, else as lines in a log."""
    tally = Tally(total=total)
    beside = listing is Listing.MEANWHILE and is_pipe(sys.stdout)  # a pipe may write to the same terminal (tee)
    try:
        if beside or not is_terminal(sys.stderr):
            yield now_and_then(tally, time.monotonic, complain)
        else:
            with _line(tally) as update:
                yield _listener(tally, update)
    finally:
        for note in tally.notes:
            complain(note)


@contextmanager
def _line(tally: Tally) -> Iterator[Callable[[], None]]:
    """Show one line until the block ends; yield the function that draws it again."""
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
        yield update
    finally:
        with suppress(OSError):
            live.stop()


def progress_text(tally: Tally) -> str:
    """Return the text `3/10 done, 1 not as expected; running a, b; trying other inputs of c`.

    In a cluster it is `…; on 2 nodes; node-1: a, b; node-2: c`: what each node runs.
    """
    width = len(f"{tally.total:,}")
    parts = [f"{tally.done:>{width},}/{tally.total:,} done", f"{tally.unexpected:,} not as expected"]
    doing: list[str] = []
    nodes = sorted({node for node in tally.running.values() if node})
    if nodes:
        doing.append(f"on {counted(len(nodes), 'node')}")
    for node in nodes or [""]:
        doing += _doing(tally, node)
    return "; ".join([", ".join(parts), *doing])


def _doing(tally: Tally, node: str) -> list[str]:
    """Return what runs on a node, or on this machine if it is ""."""
    ids = [name for name, where in tally.running.items() if where == node]
    checked = ", ".join(name for name in ids if name not in tally.trying)
    explored = ", ".join(name for name in ids if name in tally.trying)
    running, lead = ("", f"{safe(node)}: ") if node else ("running ", "")
    doing = [f"{running}{safe(checked)}"] if checked else []
    doing += [f"trying other inputs of {safe(explored)}"] if explored else []
    return [f"{lead}{', '.join(doing)}"] if node and doing else doing


def now_and_then(tally: Tally, clock: Callable[[], float], write: Callable[[str], None]) -> Listener:
    """Return a listener that writes the progress at most once per `_LOG_INTERVAL`."""
    last = [clock()]

    def changed() -> None:
        if clock() - last[0] >= _LOG_INTERVAL:
            last[0] = clock()
            write(progress_text(tally))

    return _listener(tally, changed)


def _listener(tally: Tally, changed: Callable[[], None]) -> Listener:
    def started(case_id: str, node: str) -> None:
        tally.running[case_id] = node
        changed()

    def trying(case_id: str) -> None:
        tally.trying.add(case_id)
        changed()

    def finished(result: CaseResult) -> None:
        tally.running.pop(result.id, None)
        tally.done += 1
        tally.unexpected += not result.as_expected
        changed()

    return Listener(started=started, trying=trying, finished=finished, noted=tally.notes.append)
