"""The light process's view of one worker: its socket, its output, and its current task."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from enum import StrEnum

from gradverify.run.framing import send_frame, take_frame
from gradverify.run.notepad import clear
from gradverify.run.server_protocol import CHANNEL_CLOSED_EXIT
from gradverify.run.task import Assignment, Environment, Progress, Reply, Task, WorkStarted

_BLOCK = 1 << 18
_MAX_BLOCKS = 64  # read at a time, so that the output of one worker does not delay the others
_KEPT_OUTPUT = 1 << 16  # bytes of output that are kept: enough for the tracebacks of many threads


class EndReason(StrEnum):
    """Why a worker is killed."""

    TIMEOUT = "timeout"
    SPENT = "spent"  # its last task changed the process
    CHANNEL_CLOSED = "channel-closed"  # its socket was closed, or sent bytes that are no message
    DROPPED = "dropped"  # its work is no longer wanted


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerHandle:
    """One worker. The fields change while it works."""

    channel: socket.socket
    output: int
    notepad: int  # descriptor of the file in which the worker notes how far its case has come
    process: int | None = None  # process id; None until the server reports it
    task: Task | None = None
    begun: float | None = None  # monotonic time at which the task started
    limited_since: float | None = None  # monotonic time from which its time limit counts: that, or its last try
    progress: Progress | None = None  # of a case that tries other inputs; None before its first try, while it lives
    told: float | None = None  # monotonic time at which its tries were last told
    served: int = 0  # tasks finished
    resource: str = ""  # of its last task
    environment: Environment = ()  # of its tasks; any, as long as it has had none
    closed_since: float | None = None  # monotonic time at which its socket was closed
    end_reason: EndReason | None = None  # None until it is to be killed
    received: bytearray = field(default_factory=bytearray)  # bytes of an incomplete message
    tail: bytearray = field(default_factory=bytearray)  # the end of the task's output


def send_task(worker: WorkerHandle, task: Task) -> None:
    """Send a task to an idle worker. If it has died meanwhile, the server reports it."""
    worker.task, worker.begun, worker.limited_since = task, None, None
    worker.progress, worker.told, worker.resource = None, None, task.resource
    worker.environment = task.environment
    worker.tail.clear()
    clear(worker.notepad)
    with contextlib.suppress(OSError):
        worker.channel.setblocking(True)
        assignment = Assignment(work=task.work, timeout=task.timeout, memory=task.memory, environment=task.environment)
        send_frame(worker.channel, assignment)
    with contextlib.suppress(OSError):
        worker.channel.setblocking(False)


def receive_messages(worker: WorkerHandle) -> list[WorkStarted | Progress | Reply]:
    """Return the messages that have arrived; sets `closed_since` if there will be no more."""
    messages: list[WorkStarted | Progress | Reply] = []
    try:
        for _ in range(_MAX_BLOCKS):
            part = worker.channel.recv(_BLOCK)
            if not part:
                worker.closed_since = worker.closed_since or time.monotonic()
                break
            worker.received += part
    except BlockingIOError:
        pass
    except OSError:
        worker.closed_since = worker.closed_since or time.monotonic()
    try:
        while (message := take_frame(worker.received)) is not None:
            messages.append(message)
    except Exception:  # unpickling arbitrary bytes may raise anything
        worker.closed_since = worker.closed_since or time.monotonic()
    return messages


def read_output(worker: WorkerHandle) -> bool:
    """Read the worker's output and keep its end; return True if the pipe is still open."""
    try:
        for _ in range(_MAX_BLOCKS):
            part = os.read(worker.output, _BLOCK)
            if not part:
                return False
            worker.tail += part
            del worker.tail[:-_KEPT_OUTPUT]
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def close_handle(worker: WorkerHandle) -> None:
    """Close the socket, the output pipe and the notepad of a worker."""
    worker.channel.close()
    for end in (worker.output, worker.notepad):
        with contextlib.suppress(OSError):
            os.close(end)


def ending(status: int, end_reason: EndReason | None) -> str:
    """Return how a worker ended, as the predicate of a sentence."""
    code = os.waitstatus_to_exitcode(status)
    if code == CHANNEL_CLOSED_EXIT or (end_reason is EndReason.CHANNEL_CLOSED and code == -signal.SIGKILL):
        return "closed the file descriptors of its own worker"
    if code >= 0:
        return f"ended the process with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = ", sent by something else or by the system when memory ran out" if name == "SIGKILL" else ""
    return f"crashed: {name} ({signal.strsignal(-code)}{why})"
