"""The server: a process that has loaded torch and forks workers. It runs no user code and does not use a GPU.

It ends together with the process that started it, and kills its workers first.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress

from gradverify.core.model.limits import keep_freed_memory
from gradverify.run.descendants import adopt_orphans, children, end_with_parent
from gradverify.run.server_protocol import DIED, FORK, FORKED, NEWS, ORDER, PREPARE, READY
from gradverify.run.worker import serve

# Modules that torch.autograd.grad imports at its first call: imported here once, not in every worker.
_IMPORTED_LATE = ("torch.fx.experimental.symbolic_shapes", "torch.utils._device")
# Imported by the first call of a custom operator, in 0.6 s. It imports Triton, and without the interpreter.
_IMPORTED_BY_OPERATORS = "torch._dynamo"


def main(control_fd: int) -> None:
    """Handle orders from the socket `control_fd` until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # any handler: without one, the wake-up pipe is not written
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for module in _IMPORTED_LATE:
        with suppress(ImportError):
            importlib.import_module(module)
    keep_freed_memory()  # inherited by workers: the block does not count towards the memory limit of a case
    adopt_orphans()
    gc.freeze()  # the collector of a worker leaves these objects alone, so their pages stay shared
    gc.enable()
    control = socket.socket(fileno=control_fd)
    workers: set[int] = set()
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # from here on workers may exist: they are killed before the server ends
    try:
        control.sendall(NEWS.pack(READY, os.getpid(), 0))
        _loop(control, (wake_read, wake_write), workers)
    except (EOFError, OSError):
        pass
    finally:
        _end_all(workers)
        control.close()


def _loop(control: socket.socket, wake: tuple[int, int], workers: set[int]) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wake[0], selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if wake[0] in ready:
                with suppress(BlockingIOError):
                    os.read(wake[0], 4096)
                _reap(control, workers)
            if control.fileno() in ready:
                _handle_order(control, wake, workers)


def _handle_order(control: socket.socket, wake: tuple[int, int], workers: set[int]) -> None:
    order, fds, _, _ = socket.recv_fds(control, ORDER.size, 3)
    if not order:
        raise EOFError
    while len(order) < ORDER.size:
        order += control.recv(ORDER.size - len(order))
    what, pid = ORDER.unpack(order)
    if what == FORK:
        child = _fork(control, wake, fds)
        if child:
            workers.add(child)
        control.sendall(NEWS.pack(FORKED, child, 0))
    elif what == PREPARE:
        _prepare()
    elif pid in workers:
        _end_group(pid)


def _prepare() -> None:
    """Import what custom operators need, for workers that are forked from now on."""
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(_IMPORTED_BY_OPERATORS)
    gc.freeze()


def _fork(control: socket.socket, wake: tuple[int, int], ends: Sequence[int]) -> int:
    """Return the new worker's process id, 0 if fork failed."""
    server = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork warns of other threads; none here matters
            child = os.fork()
        if child == 0:
            _become_worker(control, wake, ends, server)
        with suppress(OSError):
            os.setpgid(child, child)  # in the parent and in the child: either may run first
        return child
    except OSError:
        return 0
    finally:
        for end in ends:
            os.close(end)


def _become_worker(control: socket.socket, wake: tuple[int, int], ends: Sequence[int], server: int) -> None:
    """Run a worker in the forked process: `ends` are its socket, output and notepad. Never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        control.close()
        for end in wake:
            os.close(end)
        end_with_parent()
        if os.getppid() != server:
            os._exit(1)
        adopt_orphans()  # a process left by a case becomes a child of its worker, then of the server
        channel, output, notepad = ends
        serve(socket.socket(fileno=channel), output, notepad)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _reap(control: socket.socket, workers: set[int]) -> None:
    """Report dead workers and kill the processes they left, before their process ids can be reused."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        _end_group(found.si_pid)
        _, status = os.waitpid(found.si_pid, 0)
        workers.discard(found.si_pid)
        for orphan in set(children()) - workers:  # left by a dead worker, and not in its process group
            _end_group(orphan)
        control.sendall(NEWS.pack(DIED, found.si_pid, status))


def _end_all(workers: set[int]) -> None:
    """Kill every worker, and the processes that this one adopts when workers die."""
    with suppress(ChildProcessError):
        while True:
            for pid in {*workers, *children()}:
                _end_group(pid)
            dead, _ = os.wait()
            workers.discard(dead)


def _end_group(pid: int) -> None:
    """Kill the process group of a worker, and the worker in case it has left the group."""
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(pid, signal.SIGKILL)
