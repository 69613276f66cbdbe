"""Signals to a running command: it ends at once, reports finished cases, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gradverify.report.to_json import from_json
from gradverify.result import Report
from tests.run.processes import left_over, offspring

pytestmark = pytest.mark.slow  # whole commands that are interrupted

SPEC = """
inputs: {x: {shape: [2]}}
checks: [gradcheck]
cases:
  first: {function: "ops.py:square"}
  second: {function: "ops.py:hangs"}
"""
OPS = """
import pathlib
import time

def square(x):
    return x * x

def hangs(x):
    pathlib.Path("hangs").touch()
    time.sleep(60)
"""


def not_ignored() -> None:
    """Reset SIGINT and SIGHUP to their defaults: they are ignored in background jobs and under nohup."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def started(folder: Path) -> Iterator[subprocess.Popen[str]]:
    (folder / "spec.yaml").write_text(SPEC)
    (folder / "ops.py").write_text(OPS)
    words = [sys.executable, "-m", "gradverify", "run", "spec.yaml", "-j", "1", "--json", "out.json"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=not_ignored,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(process: subprocess.Popen[str], sign: Path | None = None) -> None:
    """Wait until a process has a child, or a file exists."""
    while process.poll() is None and not (sign.exists() if sign else offspring(process.pid)):
        time.sleep(0.01)
    assert process.poll() is None


def catches(process: int, number: signal.Signals) -> bool:
    """True if a process has a handler for a signal."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (caught,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (number - 1) & 1)


def saved(folder: Path, name: str) -> Report:
    return from_json((folder / name).read_text(encoding="utf-8"))


def test_a_run_leaves_no_resource_warnings(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "ops.py").write_text(OPS)
    words = [sys.executable, "-W", "error", "-m", "gradverify", "run", "spec.yaml", "-k", "first", "-j", "1"]
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "error"}
    ran = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signal_while_a_case_runs(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as process:
        wait_until(process, tmp_path / "hangs")
        descendants = offspring(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "spec/first/cpu-float64" in out
    assert out.splitlines()[-1].startswith("✗ 1 case not run (interrupted); 1 case as expected: 1 pass in ")
    assert err == "gradverify: interrupted: 1 of 2 cases had finished\n"
    for name in ("out.json", ".gradverify/last.json"):
        assert [case.id for case in saved(tmp_path, name).cases] == ["spec/first/cpu-float64"]
    assert len(descendants) == 2
    assert not left_over(descendants)


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, 130, "gradverify: interrupted\n"), (signal.SIGTERM, -signal.SIGTERM, "")],
)
def test_signal_while_the_command_line_is_read(tmp_path: Path, number: signal.Signals, code: int, message: str) -> None:
    with started(tmp_path) as process:
        wait_until(process)
        descendants = offspring(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (code, "", message)
    assert not left_over(descendants)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_workers_start(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as process:
        wait_until(process)
        while not catches(process.pid, signal.SIGTERM):  # as it does once the command line is read
            time.sleep(0.01)
        descendants = offspring(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == ""
    if err == "gradverify: interrupted\n":  # the interrupt came while the specs were read
        assert not (tmp_path / "out.json").exists()
    else:
        assert err == "gradverify: interrupted: 0 of 2 cases had finished\n"
        assert saved(tmp_path, "out.json").cases == ()
    assert not (tmp_path / ".gradverify").exists()
    assert not left_over(descendants)
