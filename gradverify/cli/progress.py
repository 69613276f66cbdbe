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

_MOST_NODES = 8  # that have a line of their own
_LOG_INTERVAL = 30.0  # seconds between two lines in a log


@dataclass(slots=True, kw_only=True)
class Tally:
    """The numbers of finished and unexpected cases. The fields change during the run."""

    total: int
    done: int = 0
    unexpected: int = 0
    running: dict[str, str] = field(default_factory=dict)  # node by id, in the order of their start; "" for no node
    trying: dict[str, str] = field(default_factory=dict)  # tries and failures, by id of those whose inputs are changed
    notes: list[str] = field(default_factory=list)  # sentences to print when the block ends


@contextmanager
def progress(total: int, listing: Listing = Listing.AFTERWARDS) -> Iterator[Listener]:
    """Show progress until the block ends: on a terminal as lines that are removed again, else as lines in a log.

    On a terminal it is one line, and in a cluster one more for each node.
    """
    tally = Tally(total=total)
    beside = listing is Listing.MEANWHILE and is_pipe(sys.stdout)  # a pipe may write to the same terminal (tee)
    try:
        if beside or not is_terminal(sys.stderr):
            yield now_and_then(tally, time.monotonic, complain)
        else:
            with _drawn(tally) as update:
                yield _listener(tally, update)
    finally:
        for note in tally.notes:
            complain(note)


@contextmanager
def _drawn(tally: Tally) -> Iterator[Callable[[], None]]:
    """Show the progress until the block ends; yield the function that draws it again."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def draw() -> Text:
        return Text("\n".join(progress_lines(tally)), no_wrap=True, overflow="ellipsis", end="")

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
    """Return the text `3/10 done, 1 not as expected; running a, b; trying other inputs of c (9 tries, 1 failure)`.

    In a cluster it is `…; on 2 nodes; node-1: a, b; node-2: c`: what each node runs.
    """
    head = [_counts(tally)]
    nodes = _nodes(tally)
    if not nodes:
        return "; ".join([*head, *_doing(tally, "")])
    head.append(f"on {counted(len(nodes), 'node')}")
    return "; ".join([*head, *(f"{safe(node)}: {', '.join(_doing(tally, node))}" for node in nodes)])


def progress_lines(tally: Tally) -> tuple[str, ...]:
    """Return the same as lines for a terminal: one, and in a cluster one more for each of the first nodes."""
    nodes = _nodes(tally)
    if not nodes:
        return (progress_text(tally),)
    shown = nodes if len(nodes) <= _MOST_NODES else nodes[: _MOST_NODES - 1]
    width = max(len(safe(node)) for node in shown)
    rows = [f"  {safe(node):<{width}}  {', '.join(_doing(tally, node))}" for node in shown]
    if len(nodes) > len(shown):
        rows.append(f"  and {len(nodes) - len(shown):,} more")
    return (f"{_counts(tally)}; on {counted(len(nodes), 'node')}", *rows)


def _counts(tally: Tally) -> str:
    width = len(f"{tally.total:,}")
    return f"{tally.done:>{width},}/{tally.total:,} done, {tally.unexpected:,} not as expected"


def _nodes(tally: Tally) -> list[str]:
    """Return the names of the nodes that run something, none on one machine."""
    return sorted({node for node in tally.running.values() if node})


def _doing(tally: Tally, node: str) -> list[str]:
    """Return what runs on a node, or on this machine if it is "": `running` is not said of a node."""
    ids = [name for name, where in tally.running.items() if where == node]
    checked = ", ".join(name for name in ids if name not in tally.trying)
    explored = ", ".join(f"{name}{tally.trying[name]}" for name in ids if name in tally.trying)
    doing = [f"{'' if node else 'running '}{safe(checked)}"] if checked else []
    return [*doing, *([f"trying other inputs of {safe(explored)}"] if explored else [])]


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

    def trying(case_id: str, tries: int, failures: int) -> None:
        found = f", {counted(failures, 'failure')}" if failures else ""
        tally.trying[case_id] = f" ({counted(tries, 'try', 'tries')}{found})" if tries else ""
        changed()

    def finished(result: CaseResult) -> None:
        tally.running.pop(result.id, None)
        tally.done += 1
        tally.unexpected += not result.as_expected
        changed()

    return Listener(started=started, trying=trying, finished=finished, noted=tally.notes.append)
