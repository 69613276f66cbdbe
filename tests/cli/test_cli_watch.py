"""`run --watch` runs the cases that a saved file concerns, on a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradverify.cli.watching.files import is_relevant, watched
from gradverify.cli.watching.inbox import Happening, Saved
from gradverify.cli.watching.screen import reason

ROOT = Path(__file__).parent.parent.parent
WAIT = 60  # seconds for a text to appear; only a failing test takes them
DOUBLE = """import torch

from helpers import FACTOR


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * FACTOR

    @staticmethod
    def backward(ctx, grad):
        return grad * 2
"""
SQUARE = "def square(x):\n    return x * x\n"
SPEC = "function: ../{0}.py:{1}\ninputs: {{x: {{shape: [2]}}}}\nchecks: [gradcheck]\n"


_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Session:
    """A watching process. Its output is read when a text is awaited."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.output = output
        self.text = ""  # not awaited yet, with escape sequences

    def until(self, wanted: str) -> str:
        """Return the output up to `wanted`, without escape sequences."""
        end = time.monotonic() + WAIT
        while wanted not in (plain := _ESCAPE.sub("", self.text)):
            ready, _, _ = select.select([self.output], [], [], max(0.0, end - time.monotonic()))
            data = b""
            if ready:
                with contextlib.suppress(OSError):  # a terminal whose process has ended
                    data = os.read(self.output, 65536)
            assert data, f"{wanted!r} did not appear in {self.text!r}"
            self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")
        before, _, self.text = plain.partition(wanted)
        return before + wanted

    def press(self, key: str) -> None:
        os.write(self.output, key.encode())

    def ended(self) -> int:
        return self.process.wait(WAIT)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    save(tmp_path / "pyproject.toml", "")
    save(tmp_path / "double.py", DOUBLE)
    save(tmp_path / "helpers.py", "FACTOR = 2\n")
    save(tmp_path / "square.py", SQUARE)
    (tmp_path / "specs").mkdir()
    save(tmp_path / "specs" / "double.yaml", SPEC.format("double", "Double"))
    save(tmp_path / "specs" / "square.yaml", SPEC.format("square", "square"))
    return tmp_path


def save(path: Path, text: str) -> None:
    """Write a file as many editors do: under another name, then renamed."""
    beside = path.with_name(f"{path.name}~")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


Starting = Callable[..., Session]


@pytest.fixture
def start(project: Path) -> Iterator[Starting]:
    """Return a function that starts `run --watch` in a terminal, or in a pipe."""
    sessions: list[Session] = []

    def started(*words: str, in_pipe: bool = False) -> Session:
        ours, theirs = os.pipe() if in_pipe else pty.openpty()
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "COLUMNS": "80"}
        process = subprocess.Popen(
            [sys.executable, "-m", "gradverify", "run", "specs", "--watch", "-j", "2", *words],
            cwd=project,
            env={**environment, "TERM": "xterm"},
            stdin=subprocess.DEVNULL if in_pipe else theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        sessions.append(Session(process, ours))
        return sessions[-1]

    yield started
    for session in sessions:
        if session.process.poll() is None:
            session.process.kill()
            session.process.wait()
        os.close(session.output)


FOOTER = "watching 2 cases: a runs all, Enter the last again, q quits\n"


@pytest.mark.slow
def test_a_saved_helper_runs_what_imports_it_and_keys_run_more(start: Starting, project: Path) -> None:
    session = start("--json", "out.json")
    assert "2 cases as expected: 2 pass" in session.until(FOOTER)
    save(project / "helpers.py", "FACTOR = 3\n")
    shown = session.until(FOOTER)
    assert "helpers.py changed: 1 of 2 cases\n" in shown
    assert "1 of 1 case not as expected: 1 fail" in shown
    assert "square/square" not in shown
    save(project / "square.py", SQUARE + "# saved\n")
    shown = session.until(FOOTER)
    assert "square.py changed: 1 of 2 cases\n" in shown
    assert "1 other case is still not as expected:\n✗ FAIL   double/Double/cpu-float64" in shown
    session.press("\n")
    assert "again: 1 case\n" in session.until(FOOTER)
    session.press("a")
    shown = session.until(FOOTER)
    assert "all: 2 cases\n" in shown
    assert "1 of 2 cases not as expected: 1 fail; as expected: 1 pass" in shown
    assert len(json.loads((project / "out.json").read_text(encoding="utf-8"))["cases"]) == 2
    session.press("q")
    assert session.ended() == 1


@pytest.mark.slow
def test_mistakes_in_specs_are_shown_and_a_save_during_a_run_starts_it_again(start: Starting, project: Path) -> None:
    session = start()
    session.until(FOOTER)
    one = FOOTER.replace("2 cases", "1 case")
    save(project / "specs" / "square.yaml", "inpts: 3\n")
    assert "specs/square.yaml:1:1: inpts: unknown key (did you mean `inputs`?)\n" in session.until(one)
    save(project / "double.py", DOUBLE.replace("class Double", "class Dubble"))
    assert "specs/double.yaml:1:11: function: double.py has no `Double`" in session.until(one)
    save(project / "double.py", DOUBLE)
    assert "1 case as expected: 1 pass" in session.until(one)
    (project / "specs" / "square.yaml").unlink()
    assert f"square.yaml removed\n\n{one}" in session.until(one).replace("\r\n", "\n")
    save(project / "specs" / "third.yaml", SPEC.format("square", "square"))
    assert "third.yaml changed: 1 of 2 cases\n" in session.until(FOOTER)
    save(project / "square.py", f"import time\n{SQUARE.replace('return', 'time.sleep(60)  ;  return')}")
    session.until("running third/square/cpu-float64")
    save(project / "square.py", SQUARE)
    session.until("1 case as expected: 1 pass")  # the run that was ended may have its own last lines before
    session.until(FOOTER)
    os.killpg(session.process.pid, signal.SIGINT)
    assert session.ended() == 0


@pytest.mark.slow
def test_a_pipe_gets_plain_lines(start: Starting, project: Path) -> None:
    session = start(in_pipe=True)
    session.until("2 cases as expected: 2 pass")
    save(project / "helpers.py", "FACTOR = 3\n")
    session.until("helpers.py changed: 1 of 2 cases\n")
    assert "\x1b" not in session.text
    shown = session.until("1 of 1 case not as expected: 1 fail")
    assert "q quits" not in shown
    os.killpg(session.process.pid, signal.SIGTERM)
    assert session.ended() == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-j", "0"), "--watch needs workers, which load changed modules anew, and -j 0 runs without them"),
        (("--write-baseline", "b.yaml"), "--watch and --write-baseline exclude each other"),
        (("--explore", "--save", "found"), "--watch and --save exclude each other"),
        (("--json", "-"), "--watch shows every run on stdout; name a file after --json"),
        (("--html", "-"), "--watch shows every run on stdout; name a file after --html"),
    ],
)
def test_options_that_watching_excludes(call, words: tuple[str, ...], why: str) -> None:
    result = call("run", "a.yaml", "--watch", *words)
    assert (result.exit_code, result.stderr) == (2, f"gradverify: {why}\n")


@pytest.mark.slow
def test_a_path_that_does_not_exist_is_a_mistake(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "gradverify", "run", "spec", "--watch"],
        cwd=project,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1] == ("gradverify: nothing to watch: name a spec or a folder of specs that exists")


@pytest.mark.parametrize(
    ("name", "relevant"),
    [
        ("ops.py", True),
        ("specs/a.yaml", True),
        ("values.npz", True),
        ("csrc/kernel.cu", True),
        ("uv.lock", True),
        ("specs", True),  # a folder that was there
        ("out.json", False),
        (".out.json.17.tmp", False),
        ("ops.py~", False),
        (".ops.py.swp", False),
        (".git/index", False),
        (".venv/lib/a.py", False),
        ("venv/lib/site-packages/a.py", False),
        ("__pycache__/ops.py", False),
        (".gradverify/a.yaml", False),
    ],
)
def test_which_files_are_watched(tmp_path: Path, name: str, relevant: bool) -> None:
    assert is_relevant(tmp_path / name, [tmp_path]) is relevant


def test_one_save_that_the_system_reports_twice_is_one_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = tmp_path / "ops.py", tmp_path / "other.py"

    def bursts(*_roots: Path, **_options: object) -> Iterator[set[tuple[int, str]]]:
        yield set()
        for path, text in ((file, "a"), (file, None), (other, "b"), (file, "longer"), (file, None)):
            if text is not None:
                path.write_text(text, encoding="utf-8")
            yield {(1, str(path))}
        for _ in range(2):
            file.unlink(missing_ok=True)
            yield {(3, str(file))}

    monkeypatch.setattr("watchfiles.watch", bursts)
    reported: list[Happening] = []
    with watched([tmp_path], reported.append):
        pass
    assert reported == [Saved(files=frozenset((path,))) for path in (file, other, file, file)]


def test_the_reason_names_what_was_saved_without_temporary_files_that_are_gone(tmp_path: Path) -> None:
    saved = [tmp_path / f"{name}.py" for name in "abcde"]
    for file in saved:
        file.touch()
    gone = tmp_path / "sedzI0kEQ"
    assert reason([saved[0], gone], 1, 2) == "a.py changed: 1 of 2 cases"
    assert reason(saved, 2, 2) == "a.py, b.py, c.py and 2 more changed: 2 of 2 cases"


def test_the_reason_says_what_was_removed(tmp_path: Path) -> None:
    (tmp_path / "there.yaml").touch()
    assert reason([tmp_path / "gone.yaml"], 0, 2) == "gone.yaml removed"
    assert reason([tmp_path / "specs_gone"], 0, 2) == "specs_gone removed"
    assert reason([tmp_path / "gone.yaml", tmp_path / "there.yaml"], 1, 2) == (
        "gone.yaml, there.yaml changed: 1 of 2 cases"
    )
