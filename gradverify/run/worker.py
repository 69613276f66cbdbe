"""A worker process: it does one piece of work after another until its socket is closed."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import torch

from gradverify.deadline import deadline_before_kill
from gradverify.result import CaseResult
from gradverify.run.crash_report import crash_dumps_to, dump_before
from gradverify.run.framing import receive_frame, send_frame
from gradverify.run.memory import memory_limit, naming_limit
from gradverify.run.moved_paths import packed_answer, received_work
from gradverify.run.notepad import note
from gradverify.run.run_work import interrupted_by_itself, run_work
from gradverify.run.server_protocol import CHANNEL_CLOSED_EXIT
from gradverify.run.state import State, current_state, irreversible_state
from gradverify.run.task import Assignment, Progress, Reply, WorkStarted

_STREAMS = (1, 2)


def serve(channel: socket.socket, output: int, notepad: int) -> None:
    """Do the work that arrives over `channel`; everything printed goes to the pipe `output`.

    How far a case has come is noted in the file `notepad`. Returns when the other end is closed, or after work that
    changed the process.
    """
    null_input = os.open(os.devnull, os.O_RDONLY)
    opened, notes = os.fstat(channel.fileno()), os.fstat(notepad)
    pid = os.getpid()
    before, state = irreversible_state(), current_state()

    def send(message: Progress | Reply) -> None:
        if os.getpid() != pid:
            os._exit(0)  # a process that user code forked
        if isinstance(message, Progress) and message.trying is None:
            _written(notepad, notes, lambda: note(notepad, message))
        else:
            _written(channel.fileno(), opened, lambda: send_frame(channel, message))

    while True:
        _redirect_streams(null_input, output)
        try:
            assignment = receive_frame(channel)
        except (EOFError, OSError):
            return
        send_frame(channel, WorkStarted())
        with crash_dumps_to(output, assignment.timeout):
            reply = _run(assignment, before, state, _with_clock(send, output, assignment.timeout))
        _flush()
        send(reply)
        if reply.spent:
            return


def _with_clock(send: Callable[[Progress], None], output: int, seconds: float) -> Callable[[Progress], None]:
    """Return a `send` that also starts the time limit again when a try with other inputs begins."""

    def sent(progress: Progress) -> None:
        send(progress)
        if progress.trying is not None:
            dump_before(output, seconds)

    return sent


def _run(assignment: Assignment, before: tuple[object, ...], state: State, send: Callable[[Progress], None]) -> Reply:
    work = received_work(assignment.work)
    try:
        with memory_limit(assignment.memory):
            answer = run_work(
                work,
                state,
                assignment.environment,
                deadline=deadline_before_kill(assignment.timeout),
                on_progress=send,
            )
    except KeyboardInterrupt as error:  # raised by user code: a worker gets no Ctrl-C
        answer = interrupted_by_itself(work, error)
    if isinstance(answer, CaseResult) and assignment.memory is not None:
        answer = naming_limit(answer, assignment.memory)
    return Reply(
        answer=packed_answer(answer, assignment.work, work), spent=irreversible_state() != before or not _gpu_works()
    )


def _gpu_works() -> bool:
    """True if the GPUs in use still work: after a failed device assertion, every later call on the device fails."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    used = [index for index in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(index)]
    try:
        for index in used:
            torch.cuda.synchronize(index)
        torch.cuda.empty_cache()  # another worker may run the next case of this GPU
    except RuntimeError:
        return False
    return True


def _written(descriptor: int, opened: os.stat_result, write: Callable[[], None]) -> None:
    """Write to a file or socket of this worker.

    Ends the process if user code closed it: its descriptor may be another file now.
    """
    try:
        if not os.path.samestat(os.fstat(descriptor), opened):
            raise OSError("it was closed")
        write()
    except OSError:
        os._exit(CHANNEL_CLOSED_EXIT)


def _redirect_streams(null_input: int, output: int) -> None:
    """Connect stdin to nothing and stdout and stderr to the pipe, even if user code closed or redirected them."""
    with suppress(OSError):
        os.dup2(null_input, 0)
        for stream in _STREAMS:
            os.dup2(output, stream)


def _flush() -> None:
    """Flush the output buffers of Python and C, so that the output belongs to the case that printed it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)
