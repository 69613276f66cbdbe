"""One worker as the light process sees it: its socket, its output, and what it is doing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from enum import StrEnum

from gradverify.result import CheckResult
from gradverify.run.framing import send_frame, take_frame
from gradverify.run.server_protocol import DEAF_EXIT
from gradverify.run.task import Assignment, Begun, Progress, Reply, Task

_BLOCK = 1 << 18
_MOST_BLOCKS = 64  # read at a time, so that a flood of one worker does not starve the others
_TAIL = 1 << 16  # bytes of output that are kept: the last frames of many threads may be the end of it


class Doom(StrEnum):
    """Why a worker is to end."""

    TIMEOUT = "timeout"
    SPENT = "spent"  # its last piece of work changed the process
    DEAF = "deaf"  # its socket was closed, or does not make sense any more
    DROPPED = "dropped"  # its work is no longer wanted


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """One worker; the values here change while it works."""

    channel: socket.socket
    output: int
    process: int | None = None  # None until the server has said it
    task: Task | None = None
    begun: float | None = None  # when the task started, by the monotonic clock
    checks: tuple[CheckResult, ...] | None = None  # finished checks of a case; None before its first has begun
    served: int = 0  # tasks finished
    resource: str = ""  # of its last task
    deaf: float | None = None  # since when its socket is closed, by the monotonic clock
    doom: Doom | None = None  # None until it was told to end
    heard: bytearray = field(default_factory=bytearray)  # of a message that is not complete
    tail: bytearray = field(default_factory=bytearray)  # the end of what the task printed


def give(link: Link, task: Task) -> None:
    """Send a task to an idle worker; one that has died meanwhile is noticed when the server says so."""
    link.task, link.begun, link.checks, link.resource = task, None, None, task.resource
    link.tail.clear()
    with contextlib.suppress(OSError):
        link.channel.setblocking(True)
        send_frame(link.channel, Assignment(work=task.work, timeout=task.timeout, memory=task.memory))
    with contextlib.suppress(OSError):
        link.channel.setblocking(False)


def hear(link: Link) -> list[Begun | Progress | Reply]:
    """Return the messages that have come; `deaf` is set where there will be no more."""
    messages: list[Begun | Progress | Reply] = []
    try:
        for _ in range(_MOST_BLOCKS):
            part = link.channel.recv(_BLOCK)
            if not part:
                link.deaf = link.deaf or time.monotonic()
                break
            link.heard += part
    except BlockingIOError:
        pass
    except OSError:
        link.deaf = link.deaf or time.monotonic()
    try:
        while (message := take_frame(link.heard)) is not None:
            messages.append(message)
    except Exception:  # whatever pickle makes of bytes that are none of ours
        link.deaf = link.deaf or time.monotonic()
    return messages


def drain(link: Link) -> bool:
    """Read what was printed and keep its end; return whether the pipe is still open."""
    try:
        for _ in range(_MOST_BLOCKS):
            part = os.read(link.output, _BLOCK)
            if not part:
                return False
            link.tail += part
            del link.tail[:-_TAIL]
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def hang_up(link: Link) -> None:
    """Close this side of a worker's socket and pipe."""
    link.channel.close()
    with contextlib.suppress(OSError):
        os.close(link.output)


def ending(status: int, doom: Doom | None) -> str:
    """Return how a worker ended, as part of a sentence."""
    code = os.waitstatus_to_exitcode(status)
    if code == DEAF_EXIT or (doom is Doom.DEAF and code == -signal.SIGKILL):
        return "closed the file descriptors of its own worker"
    if code >= 0:
        return f"ended the process with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = ", sent by something else or by the system when memory ran out" if name == "SIGKILL" else ""
    return f"crashed: {name} ({signal.strsignal(-code)}{why})"
