"""The first tenths of a second: torch begins to load, and Ctrl-C ends the process with one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.processes import left_over, offspring

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


CHILDREN = """
import os, sys
from pathlib import Path

class Finder:
    def find_spec(self, name, *_):
        if name == "typer":  # imported before the command line is read
            print(len(Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split()), flush=True)

sys.meta_path.insert(0, Finder())
sys.argv = {words!r}
from gradverify.__main__ import main
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("words", "servers"),
    [(["run", "nowhere"], 1), (["check", "-j", "0", "nowhere.py:F"], 1), (["run", "-h"], 0), (["explain", "GV101"], 0)],
)
def test_torch_loads_while_the_command_line_is_read_and_no_process_stays(words: list[str], servers: int) -> None:
    text = CHILDREN.format(words=["gradverify", *words])
    with subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == servers
        started = offspring(process.pid)
        process.stdout.read()
    assert not left_over(started)
