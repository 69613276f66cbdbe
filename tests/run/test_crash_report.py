"""The output of a dead worker is split into printed text and the innermost line of user code."""

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


def test_output_without_a_traceback_is_unchanged() -> None:
    words = crash_report("one\nFatal mistake\n")
    assert (words.printed, words.place) == ("one\nFatal mistake\n", "")


def test_place_of_a_crash_is_in_the_crashed_thread() -> None:
    text = "printed without an end of lineFatal Python error: Segmentation fault\n\n"
    text += f"Thread 0x00007f01 (most recent call first):\n{user('loader')}\n"
    text += f"Current thread 0x00007f02 (most recent call first):\n{LIBRARY}{user('backward')}{OURS}{MODULES}"
    words = crash_report(text)
    assert (words.printed, words.place) == ("printed without an end of line", "ops.py:12 in backward")


def test_place_of_a_timeout_is_in_the_thread_of_the_case() -> None:
    text = "Timeout (0:00:00.450000)!\n"
    text += f"Thread 0x00007f01 (most recent call first):\n{user('loader')}\n"
    text += f"Thread 0x00007f02 (most recent call first):\n{TORCH}{user('forward')}{OURS}\nprinted afterwards\n"
    words = crash_report(text)
    assert (words.printed, words.place) == ("printed afterwards\n", "ops.py:12 in forward")


def test_place_may_be_in_autograd_thread() -> None:
    text = f"Timeout (0:00:04)!\nThread 0x1f (most recent call first):\n{user('backward')}"
    text += f"\nThread 0x2f (most recent call first):\n{TORCH}{OURS}"
    assert crash_report(text).place == "ops.py:12 in backward"


def test_place_is_empty_without_user_code() -> None:
    text = f"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  <no Python frame>\n{TORCH}"
    assert crash_report(text).place == ""


def test_escaped_characters_in_file_names_are_decoded(tmp_path: Path) -> None:
    text = 'Timeout (0:00:04)!\nThread 0x1f (most recent call first):\n  File "/a/\\xe4.py", line 2 in f\n'
    assert crash_report(text).place == "/a/ä.py:2 in f"


def test_last_lines_are_whole_lines() -> None:
    flood = "".join(f"line {number}\n" for number in range(3000))
    assert last_lines(flood).splitlines() == [f"line {number}" for number in range(2988, 3000)]
    wide = "".join(f"{number} {'x' * 300}\n" for number in range(9))
    assert [text[:2] for text in last_lines(wide).splitlines()] == ["6 ", "7 ", "8 "]


def test_last_lines_keep_short_output_and_cut_a_long_line() -> None:
    assert last_lines("one\n\n  two\n") == "one\n\n  two"
    assert last_lines("x" * 5000) == "…" + "x" * 1199
    assert last_lines("\n\n") == ""


@pytest.mark.parametrize("seconds", [1e-9, 1e300])
def test_crash_dumps_accept_any_time_limit(seconds: float, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file, crash_dumps_to(file.fileno(), seconds):
        pass
    faulthandler.enable(file=sys.__stderr__)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_leaves_the_dump_block() -> None:
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
