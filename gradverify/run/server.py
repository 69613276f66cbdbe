"""The process that has torch loaded and forks workers from itself; it runs no user code and never touches a GPU.

It ends, and every worker with it, as soon as the process that started it does.
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
from contextlib import suppress

from gradverify.core.model.memory import keep_what_is_freed
from gradverify.run.descendants import adopt_orphans, children, end_with_parent
from gradverify.run.server_protocol import DIED, FORK, FORKED, NEWS, ORDER, READY
from gradverify.run.worker import serve

# What torch.autograd.grad imports when it is first called: once here, not once in every worker.
_IMPORTED_LATE = ("torch.fx.experimental.symbolic_shapes", "torch.utils._device")


def main(control_fd: int) -> None:
    """Take orders from the socket `control_fd` until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the wake-up pipe is written to
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for module in _IMPORTED_LATE:
        with suppress(ImportError):
            importlib.import_module(module)
    keep_what_is_freed()  # workers inherit it, and need not ask for that block within the memory that a case may take
    adopt_orphans()
    gc.collect()
    gc.freeze()  # what workers never free stays shared with them
    gc.enable()
    control = socket.socket(fileno=control_fd)
    living: set[int] = set()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on there may be workers, which end first
    try:
        control.sendall(NEWS.pack(READY, os.getpid(), 0))
        _loop(control, (wake_read, wake_write), living)
    except (EOFError, OSError):
        pass
    finally:
        _end_all(living)
        control.close()


def _loop(control: socket.socket, wake: tuple[int, int], living: set[int]) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wake[0], selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if wake[0] in ready:
                with suppress(BlockingIOError):
                    os.read(wake[0], 4096)
                _reap(control, living)
            if control.fileno() in ready:
                _obey(control, wake, living)


def _obey(control: socket.socket, wake: tuple[int, int], living: set[int]) -> None:
    order, fds, _, _ = socket.recv_fds(control, ORDER.size, 2)
    if not order:
        raise EOFError
    while len(order) < ORDER.size:
        order += control.recv(ORDER.size - len(order))
    what, pid = ORDER.unpack(order)
    if what == FORK:
        child = _fork(control, wake, fds[0], fds[1])
        if child:
            living.add(child)
        control.sendall(NEWS.pack(FORKED, child, 0))
    elif pid in living:
        _end_group(pid)


def _fork(control: socket.socket, wake: tuple[int, int], channel: int, output: int) -> int:
    """Return the new worker's process, 0 where the system has none left to give."""
    server = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork: there are none that matter
            child = os.fork()
        if child == 0:
            _become_worker(control, wake, channel, output, server)
        with suppress(OSError):
            os.setpgid(child, child)  # here and in the child, so that it holds whoever comes first
        return child
    except OSError:
        return 0
    finally:
        os.close(channel)
        os.close(output)


def _become_worker(control: socket.socket, wake: tuple[int, int], channel: int, output: int, server: int) -> None:
    """Run a worker and end the process; never returns."""
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
        adopt_orphans()  # what a case leaves behind is seen in its worker, and comes to the server when that ends
        serve(socket.socket(fileno=channel), output)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _reap(control: socket.socket, living: set[int]) -> None:
    """Say which workers died; what they left running is ended while their number cannot belong to another."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        _end_group(found.si_pid)
        _, status = os.waitpid(found.si_pid, 0)
        living.discard(found.si_pid)
        for stray in set(children()) - living:  # a worker that died had it, and it had left the worker's group
            _end_group(stray)
        control.sendall(NEWS.pack(DIED, found.si_pid, status))


def _end_all(living: set[int]) -> None:
    """End every worker, and what each leaves to this process by its death."""
    with suppress(ChildProcessError):
        while True:
            for pid in {*living, *children()}:
                _end_group(pid)
            dead, _ = os.wait()
            living.discard(dead)


def _end_group(pid: int) -> None:
    """Kill a worker and what it started; one that left its group is killed alone."""
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(pid, signal.SIGKILL)
