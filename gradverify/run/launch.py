"""Order workers of the server, and read its news. Runs in the light process."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass

from gradverify.run.notepad import new_notepad
from gradverify.run.server_protocol import FORK, KILL, NEWS, ORDER, PREPARE
from gradverify.run.start_server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An event that the server reports: it is ready, or a worker was forked or has died."""

    what: int  # READY, FORKED or DIED
    process: int
    status: int  # as waitpid gives it


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
