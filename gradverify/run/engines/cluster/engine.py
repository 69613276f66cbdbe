"""The engine of a Ray cluster, as the light process sees it: a connection to the process that is connected to Ray."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import selectors
import socket
import subprocess
import sys
import tempfile
from collections import deque
from dataclasses import replace
from importlib.metadata import version
from typing import IO, Any

import gradverify
from gradverify.run.engines.cluster.messages import (
    Cancellation,
    Cancelled,
    Connected,
    Events,
    Opening,
    Refused,
    Submission,
    Versions,
)
from gradverify.run.engines.cluster.project import own_project
from gradverify.run.framing import packed, rebuilt, send_frame, take_frame
from gradverify.run.interrupts import Waiting
from gradverify.run.options import EngineName
from gradverify.run.start_server import ServerError, stop_process
from gradverify.run.task import EngineEvent, Loss, PackedWork, Task, TaskDone, TaskLost, unpacked
from gradverify.run.unobserved import OFF

_PROGRAM = """
import os, sys
sys.path[:] = {path!r}
from gradverify.run.engines.cluster.driver import main
main({fd})
os._exit(0)
"""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it sends nothing anywhere
    "RAY_worker_niceness": "0",  # as on one machine, if Ray is started here
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PYTHONWARNINGS": "ignore",
}
_PATIENCE = 120.0  # seconds until tasks that no node could run are given up
_CANCEL_TIMEOUT = 10.0  # seconds until the nodes have answered a cancellation
_END_TIMEOUT = 20.0  # seconds until a process that does not end is killed
_BLOCK = 1 << 20


class RayEngine:
    """Runs tasks on the nodes of a Ray cluster. See Engine for the methods."""

    name = EngineName.RAY.value

    def __init__(self, *, workers: int | None, address: str | None, patience: float = _PATIENCE) -> None:
        self._workers = workers
        self._address = address
        self._patience = patience
        self._connection: _Connection | None = None
        self._leaving: list[_Connection] = []  # connections that were closed, and whose process may still run
        self._new: list[Task] = []  # submitted, and not sent
        self._unfinished: dict[str, Task] = {}  # by key
        self._events: deque[EngineEvent] = deque()
        self._connected = False  # True once the cluster can be used

    def start(self) -> None:
        """Start to connect to the cluster, if that was not done. Raises ServerError."""
        if self._connection is None:
            self._await_end()  # its Ray on this machine, if it had one, must not be found
            self._connection, self._connected = _connect(), False
            self._send(self._opening())

    def submit(self, task: Task) -> None:
        """Queue a task; it starts when a slot of the cluster has room."""
        self._new.append(task)
        self._unfinished[task.key] = task

    def next_event(self, waiting: Waiting = contextlib.nullcontext) -> EngineEvent | None:
        """Return the next event, None when no task is left. Raises ServerError if the cluster cannot be used."""
        self._send_new()
        while not self._events:
            if not self._unfinished:
                return None
            with waiting():  # an interrupt here loses nothing: what has arrived stays in the socket
                self._wait(None)
            for message in self._received():
                self._handle(message)
        return self._events.popleft()

    def cancel(self) -> tuple[TaskLost, ...]:
        """Drop every unfinished task on every node; no event follows for them."""
        sent = self._unfinished.keys() - {task.key for task in self._new}
        self._new.clear()
        self._unfinished.clear()
        self._events.clear()
        if not sent:
            return ()
        if not self._connected:
            self._leave()
            return ()
        self._send(Cancellation())
        while self._connection is not None and self._wait(_CANCEL_TIMEOUT):
            for message in self._received():
                if isinstance(message, Cancelled):
                    return tuple(map(rebuilt, message.frames))
        self.renew()  # it did not answer
        return ()

    def renew(self) -> None:
        """Drop every task. Later tasks run in new workers, with the files that the project has then."""
        self._new.clear()
        self._unfinished.clear()
        self._events.clear()
        self._leave()

    def prepare(self) -> None:
        """Connect to the cluster, which then has the project's files as they are now."""
        self.start()

    def close(self) -> None:
        """End everything that was started on the nodes and here."""
        self.renew()
        self._await_end()

    def _opening(self) -> Opening:
        own = Versions(python=platform.python_version(), torch=version("torch"), gradverify=gradverify.__version__)
        return Opening(
            address=self._address,
            workers=self._workers,
            project=own_project(),
            versions=own,
            patience=self._patience,
        )

    def _send_new(self) -> None:
        if self._new:
            self.start()
            tasks = tuple(map(_with_packed_work, self._new))
            self._new.clear()
            self._send(Submission(tasks=tasks))

    def _send(self, message: Any) -> None:
        assert self._connection is not None
        with contextlib.suppress(OSError):  # that the other process has ended is noticed when reading
            send_frame(self._connection.socket, message)

    def _wait(self, seconds: float | None) -> bool:
        """Wait until something can be read, and return True; False after some seconds."""
        assert self._connection is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection.socket, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def _received(self) -> list[Any]:
        """Return the messages that have arrived. If the process has ended, its tasks are lost."""
        connection = self._connection
        assert connection is not None
        try:
            part = connection.socket.recv(_BLOCK)
        except OSError:
            part = b""
        if not part:
            self._handle_end()
            return []
        connection.received += part
        messages = []
        while (message := take_frame(connection.received)) is not None:
            messages.append(message)
        return messages

    def _handle(self, message: Any) -> None:
        if isinstance(message, Connected):
            self._connected = True
        elif isinstance(message, Refused):
            self.renew()
            raise ServerError(message.reason)
        elif isinstance(message, Events):
            for event in map(unpacked, map(rebuilt, message.frames)):
                if isinstance(event, TaskDone | TaskLost):
                    self._unfinished.pop(event.key, None)
                self._events.append(event)

    def _handle_end(self) -> None:
        """Report every unfinished task as lost. Raises ServerError if there was no connection yet."""
        connection = self._connection
        assert connection is not None
        self._leave()
        self._await_end()
        said = f": {connection.last_words}" if connection.last_words else ""
        if not self._connected:
            raise ServerError(f"--engine ray: the process that connects to Ray ended{said}")
        detail = f"was not finished: the connection to the Ray cluster was lost{said}"
        self._events += [TaskLost(key=key, loss=Loss.CRASH, detail=detail) for key in self._unfinished]
        self._unfinished.clear()

    def _leave(self) -> None:
        """Close the connection. The other process then ends what it has started, and itself."""
        if self._connection is not None:
            self._connection.socket.close()
            self._leaving.append(self._connection)
            self._connection = None

    def _await_end(self) -> None:
        """Wait until the processes of closed connections have ended."""
        for connection in self._leaving:
            stop_process(connection.process, _END_TIMEOUT)
            connection.read_last_words()
        self._leaving.clear()


class _Connection:
    """The process that is connected to Ray, and the socket to it."""

    def __init__(self, process: subprocess.Popen[bytes], ours: socket.socket, errors: IO[bytes]) -> None:
        self.process = process
        self.socket = ours
        self.received = bytearray()  # bytes of an incomplete message
        self.last_words = ""  # the last line of its stderr, after its end
        self._errors = errors

    def read_last_words(self) -> None:
        """Read the last line that the process, which has ended, wrote to stderr."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read().decode("utf-8", "replace").split("\n")
            self.last_words = next((line.strip() for line in reversed(lines) if line.strip()), "")
        self._errors.close()


def _with_packed_work(task: Task) -> Task:
    return replace(task, work=PackedWork(frame=packed(task.work)))


def _connect() -> _Connection:
    """Start the process that is to connect to Ray, in its own session: Ctrl-C in the terminal does not reach it."""
    if importlib.util.find_spec("ray") is None:
        raise ServerError("--engine ray needs Ray, which is not installed: pip install 'gradverify[ray]'")
    ours, theirs = socket.socketpair()
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(path=sys.path, fd=theirs.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        env={**os.environ, **_QUIET, **OFF},
    )
    theirs.close()
    return _Connection(process, ours, errors)
