"""Ctrl-C during start-up, at places where it used to end with a traceback or silently."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = """
import signal, sys

def interrupt(*_, **__):
    signal.raise_signal(signal.SIGINT)

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            interrupt()

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Finder())
if {module!r} == "":
    import typer.main
    typer.main.get_callback = interrupt
sys.argv = ["gradverify", "explain", "GV101"]
from gradverify.__main__ import main
main()
"""


def start(module: str, handler: str) -> subprocess.CompletedProcess[str]:
    text = START.format(module=module, handler=handler)
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["gradverify.cli.streams", "typer", "gradverify.cli.run", ""])
def test_an_interrupt_at_the_start_is_130_and_one_line(module: str) -> None:
    ran = start(module, "default_int_handler")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "gradverify: interrupted\n")


@pytest.mark.slow
def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    ran = start("gradverify.cli.run", "SIG_IGN")
    assert (ran.returncode, ran.stderr) == (0, "")
