"""Observe this process and those that it starts, or a command."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from gradverify.run.unobserved import OBSERVER

_STARTUP = Path(__file__).parent / "startup"  # a folder for PYTHONPATH: Python runs its sitecustomize
_NOT_FOUND, _NOT_EXECUTABLE, _BY_SIGNAL = 127, 126, 128  # exit codes, as those of a shell


def run_observed(words: Sequence[str], notes: Path, *, keeps_values: bool) -> int:
    """Run a command that notes its calls in a folder; return its exit code, 128 + n if signal n ended it.

    Its streams are those of this process. Ctrl-C reaches it from the terminal; other signals are passed on. Raises
    OSError if it cannot be started; `code_of_failed_start` is the exit code then.
    """
    environment = {**os.environ, **_observer().environment(str(notes), keeps_values)}
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if process is not None and number != signal.SIGINT:
            with suppress(OSError):
                process.send_signal(number)

    with _handled(pass_on):
        process = subprocess.Popen(list(words), env=environment, close_fds=False)
        code = process.wait()
    return code if code >= 0 else _BY_SIGNAL - code


def code_of_failed_start(error: OSError) -> int:
    """Return the exit code for a command that could not be started: that of a shell."""
    return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


@contextmanager
def observed(notes: Path, *, keeps_values: bool) -> Iterator[None]:
    """Note the calls of this process in a folder during the block, and those of the processes that it starts."""
    module = _observer()
    with _changed_environment(module.environment(str(notes), keeps_values)):
        module.OBSERVER.start(str(notes), keeps_values)
        try:
            yield
        finally:
            module.OBSERVER.stop(str(notes))


def write_counts() -> None:
    """Write what this process has counted, if it is observed."""
    module = sys.modules.get(OBSERVER)
    if module is not None:
        module.OBSERVER.flush()


def _observer() -> Any:
    """Return the package that takes notes; it is not one of gradverify's, since commands import it without them."""
    found = sys.modules.get(OBSERVER)
    return found if found is not None else _imported()


def _imported() -> ModuleType:
    folder = _STARTUP / OBSERVER
    spec = importlib.util.spec_from_file_location(
        OBSERVER, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[OBSERVER] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _changed_environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Handle signals that would end this process before the command; those that are ignored stay so."""
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for name in names if signal.getsignal(number := getattr(signal, name)) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
