"""A project with hand-written Functions, and commands that are observed in it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lent import Commands

ROOT = Path(__file__).parent.parent.parent.parent

OPS = (Path(__file__).parent / "ops.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Ran:
    """What an observed command said, and the specs that were written."""

    code: int
    out: str
    err: str
    folder: Path

    def spec(self, name: str) -> list[dict[str, Any]]:
        return list(yaml.safe_load_all((self.folder / "specs" / f"{name}.yaml").read_text(encoding="utf-8")))


def run(folder: Path, *words: str, **options: Any) -> Ran:
    """Run a Python command in a folder: its first word is a program, a module with -m, or code with -c."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, env=environment, timeout=300, **options
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr, folder=folder)


def record(folder: Path, *words: str) -> Ran:
    """Run a Python command under `gradverify record`."""
    return run(folder, "-m", "gradverify", "record", *words)


def run_here(commands: Commands, *words: str, printed: pytest.CaptureFixture[str] | None = None) -> Ran:
    """Run a command of gradverify in this process. What a recorded command prints itself is kept with `printed`."""
    done = commands(*words)
    out, err = printed.readouterr() if printed else ("", "")
    return Ran(code=done.returncode, out=out + done.stdout, err=err + done.stderr, folder=commands.folder)
