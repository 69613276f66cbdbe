"""Save and restore the process-wide state that user code may change. Random generators are seeded, not restored."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from operator import is_
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradverify.checks.default_device import default_device
from gradverify.run.descendants import children


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One piece of state: how to read and write it."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class State:
    """The values of all settings in the table below at one time."""

    values: tuple[Any, ...]


def current_state() -> State:
    """Return the present state. Takes 0.1 to 0.2 ms."""
    return State(tuple(setting.read() for setting in _SETTINGS))


@contextmanager
def state_restored(state: State) -> Iterator[None]:
    """Restore all settings to `state` when the block ends. A setting that cannot be restored is left as it is."""
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for setting, value in reversed(list(zip(_SETTINGS, state.values, strict=True))):
            with suppress(Exception):
                setting.write(value)


def irreversible_state() -> tuple[object, ...]:
    """Return state that can be read but not restored. If it differs after a task, the worker is not used again."""
    return (
        tuple(sorted(thread.ident or 0 for thread in threading.enumerate())),
        children(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        _limits(),
        tuple(all(map(is_, map(vars(owner).get, held), held.values())) for owner, held in _torchs_own()),
    )


@cache
def _torchs_own() -> tuple[tuple[Any, dict[str, Any]], ...]:
    """Return what torch holds by name, as it is at the first call: user code may put something else in its place."""
    owners = (torch, torch.Tensor, torch.autograd, torch.nn, torch.nn.functional)
    replaced = ("manual_seed",)  # by torch's own compiler, when it is imported
    return tuple(
        (owner, {name: value for name, value in vars(owner).items() if name not in replaced}) for owner in owners
    )


def _limits() -> tuple[object, ...]:
    try:
        import resource
    except ImportError:  # not on every system
        return ()
    return tuple(resource.getrlimit(number) for number in _kinds_of_limit())


@cache
def _kinds_of_limit() -> tuple[int, ...]:
    import resource

    return tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))


def _write_environment(saved: dict[str, str]) -> None:
    if dict(os.environ) != saved:
        os.environ.clear()
        os.environ.update(saved)


def _write_default_device(saved: torch.device) -> None:
    if default_device() != saved:
        torch.set_default_device(None if saved.type == "cpu" else saved)


def _write_threads(saved: int) -> None:
    if torch.get_num_threads() != saved:
        torch.set_num_threads(saved)


def _read_handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in _signals()}


@cache
def _signals() -> tuple[int, ...]:
    return tuple(signal.valid_signals())


def _write_handlers(saved: dict[int, Any]) -> None:
    """Restore handlers that Python installed; those that C code installed cannot be read."""
    for number, handler in saved.items():
        if handler is not None and signal.getsignal(number) is not handler:
            with suppress(OSError, ValueError):
                signal.signal(number, handler)


def _read_timers() -> dict[int, float]:
    return {timer: signal.getitimer(timer)[0] for timer in _TIMERS}


def _write_timers(saved: dict[int, float]) -> None:
    """Stop the timers that did not run in `saved`."""
    for timer, remaining in saved.items():
        if not remaining:
            signal.setitimer(timer, 0)


def _read_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # the directory was removed
        return None


def _write_directory(saved: Path | None) -> None:
    if saved is not None:
        os.chdir(saved)


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write_streams(saved: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = saved


def _write_path(saved: list[str]) -> None:
    sys.path[:] = saved


def _read_anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _write_anomaly(saved: tuple[bool, bool]) -> None:
    if _read_anomaly() != saved:
        torch.autograd.set_detect_anomaly(*saved)


def _read_deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _write_deterministic(saved: tuple[bool, bool]) -> None:
    if _read_deterministic() != saved:  # setting it imports the compiler, which takes a second
        torch.use_deterministic_algorithms(saved[0], warn_only=saved[1])


_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)

# Restored in reverse order: timers and signal handlers first.
_SETTINGS = (
    _Setting(read=_read_directory, write=_write_directory),
    _Setting(read=lambda: dict(os.environ), write=_write_environment),
    _Setting(read=torch.get_default_dtype, write=torch.set_default_dtype),
    _Setting(read=default_device, write=_write_default_device),
    _Setting(read=torch.is_grad_enabled, write=torch.set_grad_enabled),
    _Setting(read=_read_anomaly, write=_write_anomaly),
    _Setting(read=_read_deterministic, write=_write_deterministic),
    _Setting(read=torch.get_num_threads, write=_write_threads),
    _Setting(read=np.geterr, write=lambda saved: np.seterr(**saved)),
    _Setting(read=gc.isenabled, write=lambda saved: gc.enable() if saved else gc.disable()),
    _Setting(read=sys.getrecursionlimit, write=sys.setrecursionlimit),
    _Setting(read=lambda: list(sys.path), write=_write_path),
    _Setting(read=lambda: (sys.stdin, sys.stdout, sys.stderr), write=_write_streams),
    _Setting(read=sys.gettrace, write=sys.settrace),
    _Setting(read=sys.getprofile, write=sys.setprofile),
    _Setting(read=_read_umask, write=os.umask),
    _Setting(
        read=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        write=lambda saved: signal.pthread_sigmask(signal.SIG_SETMASK, saved),
    ),
    _Setting(read=_read_handlers, write=_write_handlers),
    _Setting(read=_read_timers, write=_write_timers),
)
