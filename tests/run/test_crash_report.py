"""What a dead worker wrote is taken apart: its output, and the user's own innermost line."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

import pytest

import gradverify
from gradverify.run.crash_report import crash_dumps_to, crash_report, last_lines

OURS = f'  File "{Path(gradverify.__file__).parent}/run/worker.py", line 60 in serve\n'
TORCH = '  File "/usr/lib/python3/site-packages/torch/autograd/graph.py", line 9 in _engine\n'
LIBRARY = f'  File "{os.__file__}", line 3 in walk\n'
MODULES = "\nExtension modules: numpy.core, torch._C (total: 2)\n"


def user(name: str) -> str:
    return f'  File "{Path.cwd()}/ops.py", line 12 in {name}\n'


def test_output_alone_is_left_as_it_is() -> None:
    words = crash_report("one\nFatal mistake\n")
    assert (words.printed, words.place) == ("one\nFatal mistake\n", "")


def test_a_crash_is_where_the_thread_was_that_crashed() -> None:
    text = "printed without an end of lineFatal Python error: Segmentation fault\n\n"
    text += f"Thread 0x00007f01 (most recent call first):\n{user('loader')}\n"
    text += f"Current thread 0x00007f02 (most recent call first):\n{LIBRARY}{user('backward')}{OURS}{MODULES}"
    words = crash_report(text)
    assert (words.printed, words.place) == ("printed without an end of line", "ops.py:12 in backward")


def test_a_time_limit_is_where_the_thread_of_the_case_was() -> None:
    text = "Timeout (0:00:00.450000)!\n"
    text += f"Thread 0x00007f01 (most recent call first):\n{user('loader')}\n"
    text += f"Thread 0x00007f02 (most recent call first):\n{TORCH}{user('forward')}{OURS}\nprinted afterwards\n"
    words = crash_report(text)
    assert (words.printed, words.place) == ("printed afterwards\n", "ops.py:12 in forward")


def test_backward_may_run_in_a_thread_of_its_own() -> None:
    text = f"Timeout (0:00:04)!\nThread 0x1f (most recent call first):\n{user('backward')}"
    text += f"\nThread 0x2f (most recent call first):\n{TORCH}{OURS}"
    assert crash_report(text).place == "ops.py:12 in backward"


def test_no_line_of_the_users_is_no_place() -> None:
    text = f"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  <no Python frame>\n{TORCH}"
    assert crash_report(text).place == ""


def test_letters_are_read_as_they_were_written(tmp_path: Path) -> None:
    text = 'Timeout (0:00:04)!\nThread 0x1f (most recent call first):\n  File "/a/\\xe4.py", line 2 in f\n'
    assert crash_report(text).place == "/a/ä.py:2 in f"


def test_of_a_flood_the_last_lines_are_told_whole() -> None:
    flood = "".join(f"line {number}\n" for number in range(3000))
    assert last_lines(flood).splitlines() == [f"line {number}" for number in range(2988, 3000)]
    wide = "".join(f"{number} {'x' * 300}\n" for number in range(9))
    assert [text[:2] for text in last_lines(wide).splitlines()] == ["6 ", "7 ", "8 "]


def test_little_output_is_told_as_it_is_and_a_line_without_end_by_its_own() -> None:
    assert last_lines("one\n\n  two\n") == "one\n\n  two"
    assert last_lines("x" * 5000) == "…" + "x" * 1199
    assert last_lines("\n\n") == ""


@pytest.mark.parametrize("seconds", [1e-9, 1e300])
def test_any_time_limit_can_be_watched(seconds: float, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file, crash_dumps_to(file.fileno(), seconds):
        pass
    faulthandler.enable(file=sys.__stderr__)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_copy_does_not_wait_for_the_thread_that_it_has_not() -> None:
    reading, writing = os.pipe()
    child = 0
    with crash_dumps_to(writing, 60.0):
        child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    faulthandler.enable(file=sys.__stderr__)
    for end in (reading, writing):
        os.close(end)
