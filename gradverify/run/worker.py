"""A worker process: it performs one piece of work after another until it is told to end."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import torch

from gradverify.core.model.deadline import deadline_before_kill
from gradverify.result import CaseResult
from gradverify.run.crash_report import watched
from gradverify.run.framing import receive_frame, send_frame
from gradverify.run.memory import blaming_limit, limited
from gradverify.run.run_work import interrupted_by_itself, perform
from gradverify.run.server_protocol import DEAF_EXIT
from gradverify.run.state import State, marks, state_now
from gradverify.run.task import Assignment, Begun, Progress, Reply

_STREAMS = (1, 2)


def serve(channel: socket.socket, output: int) -> None:
    """Perform what comes over `channel`; everything printed goes to the pipe `output`.

    Returns when the other end is closed, or after work that left the process changed.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    place = os.fstat(channel.fileno()).st_ino
    pid = os.getpid()
    before, state = marks(), state_now()

    def send(message: Progress | Reply) -> None:
        if os.getpid() != pid:
            os._exit(0)  # user code forked, and this is the copy
        _send(channel, place, message)

    while True:
        _direct_streams(nothing, output)
        try:
            assignment = receive_frame(channel)
        except (EOFError, OSError):
            return
        send_frame(channel, Begun())
        with watched(output, assignment.timeout):
            reply = _handle(assignment, before, state, send)
        _flush()
        send(reply)
        if reply.spent:
            return


def _handle(
    assignment: Assignment, before: tuple[object, ...], state: State, send: Callable[[Progress], None]
) -> Reply:
    try:
        with limited(assignment.memory):
            answer = perform(
                assignment.work,
                state,
                deadline=deadline_before_kill(assignment.timeout),
                tell=lambda finished: send(Progress(checks=finished)),
            )
    except KeyboardInterrupt as error:  # a worker has no terminal: user code raised it
        answer = interrupted_by_itself(assignment.work, error)
    if isinstance(answer, CaseResult) and assignment.memory is not None:
        answer = blaming_limit(answer, assignment.memory)
    return Reply(answer=answer, spent=marks() != before or not _device_answers())


def _device_answers() -> bool:
    """Tell whether the GPU still works; one failed assertion on it fails everything that follows."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    used = [index for index in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(index)]
    try:
        for index in used:
            torch.cuda.synchronize(index)
        torch.cuda.empty_cache()  # the next case of this GPU may run in another worker
    except RuntimeError:
        return False
    return True


def _send(channel: socket.socket, place: int, message: Progress | Reply) -> None:
    """Send a message, unless user code closed the channel and something else has its number now."""
    try:
        if os.fstat(channel.fileno()).st_ino != place:
            raise OSError("the channel was closed")
        send_frame(channel, message)
    except OSError:
        os._exit(DEAF_EXIT)


def _direct_streams(nothing: int, output: int) -> None:
    """Let reading give nothing and printing go to the pipe, also after user code closed or redirected either."""
    with suppress(OSError):
        os.dup2(nothing, 0)
        for stream in _STREAMS:
            os.dup2(output, stream)


def _flush() -> None:
    """Write out what Python and C hold back, so that it belongs to the case that printed it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)
