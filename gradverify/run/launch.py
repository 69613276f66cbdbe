"""The light process's hold on the worker server: it starts the server, asks for workers, and ends them all."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from dataclasses import dataclass

from gradverify.errors import GradverifyError
from gradverify.run.server_protocol import FORK, KILL, NEWS, ORDER

# Nothing that is imported is garbage: looking for some takes a twentieth of the time that torch takes to load. And all
# that is left in the end belongs to the system: taking it apart first takes a fifth of a second.
_PROGRAM = """
import gc, os, sys
gc.disable()
sys.path[:] = {path!r}
from gradverify.run.server import main
main({fd})
os._exit(0)
"""
_PATIENCE = 5.0  # seconds that a server has to end
# One torch thread per worker; no helper threads in the server either, since it forks.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class ServerError(GradverifyError):
    """The process that starts the workers did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    control: socket.socket  # orders go in, news come out


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something that happened to a worker."""

    what: int
    process: int
    status: int  # as waitpid gives it


def start_server() -> Server:
    """Start a server in a session of its own: Ctrl-C in the terminal reaches the light process alone.

    Raises ServerError where there is no fork.
    """
    if not hasattr(os, "fork"):
        raise ServerError("this system cannot fork workers; `-j 0` runs without them")
    ours, theirs = socket.socketpair()
    program = _PROGRAM.format(path=sys.path, fd=theirs.fileno())
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        env={**os.environ, **_ONE_THREAD},
    )
    theirs.close()
    return Server(process=process, control=ours)


def order_worker(server: Server) -> tuple[socket.socket, int]:
    """Ask for a worker; return the socket to it and the pipe that it prints into. Raises OSError."""
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    try:
        socket.send_fds(server.control, [ORDER.pack(FORK, 0)], [theirs.fileno(), writing])
    except OSError:
        ours.close()
        os.close(reading)
        raise
    finally:
        theirs.close()
        os.close(writing)
    for end in (ours.fileno(), reading):
        os.set_blocking(end, False)
    return ours, reading


def order_end(server: Server, process: int) -> None:
    """Have a worker and everything it started killed; news of its death follows."""
    with contextlib.suppress(OSError):
        server.control.sendall(ORDER.pack(KILL, process))


def receive_news(server: Server) -> News | None:
    """Read one piece of news; None when the server has ended."""
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
    """End the server; closing its socket is what tells it to kill every worker first.

    One that has not started yet, and has no worker, ends by the signal; later it takes no notice of it.
    """
    server.control.close()
    server.process.terminate()
    try:
        server.process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
