"""Specs for the hand-written Functions that a test session calls."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gradverify.author.recording.observing import observed, write_counts

_OPTION = "--gradverify-record"


def record_session(config: pytest.Config) -> None:
    """Note the calls of a session, and write specs when it ends. Workers of pytest-xdist note into the same folder."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_InWorker(), "gradverify-recording")
        return
    output = config.invocation_params.dir / str(config.getoption(_OPTION))
    if output.exists() and not output.is_dir():
        raise pytest.UsageError(f"{_OPTION} {config.getoption(_OPTION)}: expected a folder, found a file")
    stack = ExitStack()
    config.add_cleanup(stack.close)
    notes = Path(stack.enter_context(TemporaryDirectory(prefix="gradverify-record-", ignore_cleanup_errors=True)))
    stack.enter_context(observed(notes, keeps_values=False))
    arguments = list(_without_option(map(str, config.invocation_params.args)))
    source = f"`{shlex.join(['pytest', *arguments])}`"
    config.pluginmanager.register(_InSession(notes, output, source), "gradverify-recording")


class _InSession:
    """The hooks of the process that prints."""

    def __init__(self, notes: Path, output: Path, source: str) -> None:
        self._notes = notes
        self._output = output
        self._source = source

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the specs, and a section about them. What goes wrong does not change the session's exit code."""
        terminalreporter.ensure_newline()
        terminalreporter.section("gradverify")
        for row in self._rows():
            terminalreporter.write_line(row)

    def _rows(self) -> list[str]:
        from gradverify.author.recording.specs import specs_from_notes
        from gradverify.author.recording.wording import recorded_rows
        from gradverify.report.safe import safe

        write_counts()
        try:
            recorded = specs_from_notes(self._notes, self._output, self._source)
        except Exception as error:
            return [f"the specs could not be written: {type(error).__name__}: {safe(str(error))}"]
        return [safe(row) for row in recorded_rows(recorded, self._output)]


class _InWorker:
    """The hook of a process of pytest-xdist, which noted calls since it began."""

    def pytest_sessionfinish(self) -> None:
        """Write what was only counted yet: the process may end without saying so."""
        write_counts()


def _without_option(arguments: Iterator[str]) -> Iterator[str]:
    for argument in arguments:
        if argument == _OPTION:
            next(arguments, None)
        elif not argument.startswith(f"{_OPTION}="):
            yield argument
