"""The process imports no torch, writes in every encoding, and stops writing to a closed pipe."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from report_specimens import case, masked

from gradverify.cli import terminal
from gradverify.cli.progress import Tally, now_and_then, progress, progress_lines, progress_text
from gradverify.report.lines import line


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_neither_torch_nor_numpy_is_imported() -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'yaml', 'rich.console'}"
    code = f"import gradverify.cli.app, sys; assert not {heavy} & set(sys.modules)"
    assert python(code).stderr == ""


def test_the_module_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gradverify", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gradverify ")


def test_a_closed_pipe_is_silent() -> None:
    code = (
        "import os, sys; read, write = os.pipe(); os.dup2(write, 1); os.close(write); os.close(read)\n"
        "from gradverify.cli.terminal import show, stdout_terminal\n"
        "from gradverify.report.lines import line\n"
        "show((line('x' * 100) for _ in range(100000)), stdout_terminal())\n"
        "print('more')\n"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_letters_that_the_encoding_lacks_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    terminal.show([line("ж ± 2·π ok")], terminal.stdout_terminal())
    assert raw.getvalue() == b"\\u0436 +/- 2*pi ok\n"


def test_progress_text() -> None:
    tally = Tally(total=120, done=7, unexpected=2, running={"a/b": "", "c\x1b/d": ""})
    assert progress_text(tally) == r"  7/120 done, 2 not as expected; running a/b, c\x1b/d"
    assert progress_text(Tally(total=1)) == "0/1 done, 0 not as expected"


def test_progress_in_a_cluster_says_what_each_node_runs() -> None:
    tally = Tally(total=9, done=2, running={"a": "node-2", "b": "node-10", "c": "node-2"}, trying={"c": ""})
    head = "2/9 done, 0 not as expected; on 2 nodes"
    assert progress_text(tally) == f"{head}; node-10: b; node-2: a, trying other inputs of c"
    assert progress_lines(tally) == (head, "  node-10  b", "  node-2   a, trying other inputs of c")
    assert progress_lines(Tally(total=1)) == ("0/1 done, 0 not as expected",)


def test_progress_has_lines_for_the_first_nodes_only() -> None:
    tally = Tally(total=40, running={f"case{number}": f"node{number:02}" for number in range(40)})
    rows = progress_lines(tally)
    assert len(rows) == 9
    assert rows[-2:] == ("  node06  case6", "  and 33 more")


def test_notes_are_printed_when_the_progress_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1) as listener:
        listener.noted("node b died")
        assert not capsys.readouterr().err
    assert capsys.readouterr().err == "gradverify: node b died\n"


def test_progress_in_a_log_is_a_line_now_and_then() -> None:
    times, written = iter([0.0, 1.0, 31.0, 31.0, 32.0]), []
    listener = now_and_then(Tally(total=2), lambda: next(times), written.append)
    listener.started(case().id, "")
    listener.finished(masked())
    listener.finished(case())
    assert written == ["1/2 done, 1 not as expected"]


def test_a_terminal_that_was_closed_is_no_reason_to_lose_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("gradverify.cli.progress.is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", Closed())
    with progress(1) as listener:
        listener.started("a/b", "")
        listener.finished(case("a/b"))


def test_progress_on_a_terminal_goes_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gradverify.cli.progress.is_terminal", lambda stream: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with progress(2) as listener:
        listener.started("a/b", "")
        listener.finished(case("a/b"))
    text = capsys.readouterr().err
    assert "1/2 done" in text
    assert "\x1b[2K" in text
