"""Start and stop the worker server. Runs in the light process, and imports little: torch loads the sooner."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from gradverify.errors import GradverifyError
from gradverify.run.unobserved import OFF

# Imports make no garbage: collecting it takes 5 % of the time that torch takes to load. os._exit skips the teardown of
# the interpreter, which takes 0.2 s.
_PROGRAM = """
import gc, os, sys
gc.disable()
sys.path[:] = {path!r}
from gradverify.run.server import main
main({fd})
os._exit(0)
"""
_STOP_TIMEOUT = 5.0  # seconds until a server that does not end is killed
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

_Given = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


class ServerError(GradverifyError):
    """The worker server could not be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    control: socket.socket  # orders are written to it, news are read from it


_EARLY: dict[_Given, Server] = {}  # started, and not used yet, by what they were started with


def start_early() -> None:
    """Start a server for the next `start_server` to return, so that torch loads while the command line is read.

    It is stopped when this process ends, and whatever fails here is left to `start_server`.
    """
    if hasattr(os, "fork"):
        given = _given(None)
        with contextlib.suppress(OSError):
            _EARLY[given] = _started(*given)
            atexit.register(stop_early)


def start_server(path: Sequence[str] | None = None) -> Server:
    """Start a server in its own session, so that Ctrl-C in the terminal does not reach it.

    `path` is where it imports from, by default where this process does. Returns the server that was started early, if
    that imports from there and has the same environment. Raises ServerError if the system has no fork.
    """
    if not hasattr(os, "fork"):
        raise ServerError("this system cannot fork workers; `-j 0` runs without them")
    given = _given(path)
    early = _EARLY.pop(given, None)
    stop_early()  # one that would be started otherwise
    return _started(*given) if early is None else early


def stop_early() -> None:
    """Stop the server that was started early, if nothing uses it yet."""
    while _EARLY:
        stop_server(_EARLY.popitem()[1])


def _given(path: Sequence[str] | None) -> _Given:
    """Return what a server is started with: where it imports from, and its environment."""
    # One thread per worker, and no helper threads in the server: it forks.
    return tuple(sys.path if path is None else path), tuple({**os.environ, **_ONE_THREAD, **OFF}.items())


def _started(path: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Server:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(path=list(path), fd=theirs.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        env=dict(environment),
    )
    theirs.close()
    return Server(process=process, control=ours)


def stop_server(server: Server) -> None:
    """Stop the server. When its socket is closed, it kills every worker and ends.

    SIGTERM ends a server that has not finished loading and has no worker yet; later it ignores the signal.
    """
    server.control.close()
    server.process.terminate()
    stop_process(server.process, _STOP_TIMEOUT)


def stop_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until a process has ended, and kill it after so many seconds."""
    if not _ends_within(process, seconds):
        process.kill()
        process.wait()


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until a process ends, at most so many seconds, and return True if it has ended.

    On Linux, the wait ends when the process does: `Popen.wait` looks for it at intervals that grow to 0.05 s.
    """
    if process.poll() is None and sys.platform == "linux":
        with contextlib.suppress(OSError):  # an old kernel, or no descriptor left
            descriptor = os.pidfd_open(process.pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll(1000 * seconds)
            finally:
                os.close(descriptor)
            return process.poll() is not None
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
