"""Start and stop the worker server, and send it orders. Runs in the light process."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from gradverify.errors import GradverifyError
from gradverify.run.notepad import new_notepad
from gradverify.run.server_protocol import FORK, KILL, NEWS, ORDER, PREPARE
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
# One thread per worker, and no helper threads in the server: it forks.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class ServerError(GradverifyError):
    """The worker server could not be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    control: socket.socket  # orders are written to it, news are read from it


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An event that the server reports: it is ready, or a worker was forked or has died."""

    what: int  # READY, FORKED or DIED
    process: int
    status: int  # as waitpid gives it


def start_server(path: Sequence[str] | None = None) -> Server:
    """Start a server in its own session, so that Ctrl-C in the terminal does not reach it.

    `path` is where it imports from, by default where this process does. Raises ServerError if the system has no fork.
    """
    if not hasattr(os, "fork"):
        raise ServerError("this system cannot fork workers; `-j 0` runs without them")
    ours, theirs = socket.socketpair()
    program = _PROGRAM.format(path=list(sys.path if path is None else path), fd=theirs.fileno())
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        env={**os.environ, **_ONE_THREAD, **OFF},
    )
    theirs.close()
    return Server(process=process, control=ours)


def order_worker(server: Server) -> tuple[socket.socket, int, int]:
    """Order a worker; return the socket to it, and the descriptors of its output and its notepad. Raises OSError."""
    notepad = new_notepad()
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    try:
        socket.send_fds(server.control, [ORDER.pack(FORK, 0)], [theirs.fileno(), writing, notepad])
    except OSError:
        ours.close()
        os.close(reading)
        os.close(notepad)
        raise
    finally:
        theirs.close()
        os.close(writing)
    for end in (ours.fileno(), reading):
        os.set_blocking(end, False)
    return ours, reading, notepad


def order_end(server: Server, process: int) -> None:
    """Order the server to kill a worker and everything it started; the server reports its death."""
    with contextlib.suppress(OSError):
        server.control.sendall(ORDER.pack(KILL, process))


def order_preparation(server: Server) -> None:
    """Order the server to import what custom operators need. It forks no worker meanwhile."""
    with contextlib.suppress(OSError):
        server.control.sendall(ORDER.pack(PREPARE, 0))


def receive_news(server: Server) -> News | None:
    """Return the next event of the server, None if the server has ended."""
    data = b""
    while len(data) < NEWS.size:
        try:
            part = server.control.recv(NEWS.size - len(data))
        except OSError:
            part = b""
        if not part:
            return None
        data += part
    what, process, status = NEWS.unpack(data)
    return News(what=what, process=process, status=status)


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
