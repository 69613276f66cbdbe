"""Commands of gradverify that run in this process, in workers that they share: torch loads once for all of them.

What is lost is the start of a process, which tests/cli/test_cli_starting.py and others are about.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradverify.cli.app import app
from gradverify.run.options import EngineName, EngineOptions
from gradverify.run.pool import LocalPool
from gradverify.run.task import Engine


class Lent:
    """An engine that lives on when a command closes it. Each command gets new workers if `renews`."""

    def __init__(self, engine: Engine, renews: bool) -> None:
        self.name = engine.name
        self.submit, self.next_event, self.cancel = engine.submit, engine.next_event, engine.cancel
        self.renew = engine.renew if renews else _nothing

    def close(self) -> None:
        """Leave the engine to the next command."""
        self.renew()


def _nothing() -> None:
    """Keep the workers: no file of the user changes."""


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Commands:
    """Runs commands in a folder, which is the current one of this process and of the workers."""

    folder: Path
    patch: pytest.MonkeyPatch

    def __call__(self, *words: str) -> Ran:
        self.patch.setattr(sys, "argv", ["gradverify", *words])
        result = CliRunner().invoke(app, list(words))
        return Ran(result.exit_code, result.stdout, result.stderr)


def lend(patch: pytest.MonkeyPatch, engines: Mapping[EngineName, Engine], *, renews: bool = True) -> None:
    """Let commands in this process use these engines."""

    def opened(options: EngineOptions | None = None) -> Lent:
        return Lent(engines[(options or EngineOptions()).name], renews)

    for module in ("gradverify.run.engines.open", "gradverify.author.recording.specs"):
        patch.setattr(f"{module}.open_engine", opened)


def pool_in(folder: Path, patch: pytest.MonkeyPatch, workers: int = 2) -> LocalPool:
    """Return a pool whose workers have a folder as their current one."""
    with patch.context() as changed:
        changed.chdir(folder)
        changed.setenv("PYTHONDONTWRITEBYTECODE", "1")
        pool = LocalPool(workers)
        pool.start()
    return pool
