"""`init` and `list --missing` on one file: what is printed, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradverify.author import specs
from gradverify.author.finding import find as finding
from tests.author.test_authoring_page import OPS
from tests.lent import Commands

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(commands: Commands) -> Path:
    """Return the folder that `commands` run in, with a module and a spec."""
    (commands.folder / "ops.py").write_text(OPS, encoding="utf-8")
    (commands.folder / "other.yaml").write_text("function: a.b:F\ndraft: later\ninputs: {x: 1}\n", encoding="utf-8")
    return commands.folder


def gradverify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradverify", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONUTF8": "1"})


def test_the_spec_of_a_wrong_function_fails(commands: Commands, folder: Path) -> None:
    made = commands("init", "ops.py")
    assert (made.returncode, made.stdout) == (
        0,
        "ops.py:ClippedReLU\twritten\tspecs/ops/ClippedReLU.yaml\tx [3, 4], clip 1.5\n",
    )
    assert made.stderr == "gradverify: 1 function: 1 spec written; verify them with `gradverify run specs/`\n"
    ran = commands("run", "specs")
    assert (ran.returncode, "cause missing-mask" in ran.stdout) == (1, True)


def test_a_file_that_is_there_is_not_replaced(commands: Commands, folder: Path) -> None:
    spec = folder / "specs" / "ops" / "ClippedReLU.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text("# mine\n", encoding="utf-8")
    made = commands("init", "ops.py")
    assert (made.returncode, made.stdout) == (
        0,
        "ops.py:ClippedReLU\texists\tspecs/ops/ClippedReLU.yaml\tnot replaced\n",
    )
    assert spec.read_text(encoding="utf-8") == "# mine\n"


@pytest.mark.parametrize(
    ("place", "said"),
    [("nowhere", "nowhere: there is no such package, module, file or folder; "), ("other.yaml", "other.yaml: ")],
)
def test_without_a_package_it_is_usage(commands: Commands, folder: Path, place: str, said: str) -> None:
    made = commands("init", place)
    assert (made.returncode, made.stdout) == (2, "")
    assert made.stderr.startswith(f"gradverify: {said}")


def test_nothing_found_says_what_was_looked_for(commands: Commands, folder: Path) -> None:
    (folder / "plain.py").write_text("x = 1\n", encoding="utf-8")
    made = commands("init", "plain.py")
    assert made.returncode == 2
    assert made.stderr.startswith(
        "gradverify: plain.py: no function with a gradient in 1 module; looked for subclasses of"
    )


LOCAL = """
from torch.autograd import Function


def make(factor):
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return factor * x

        @staticmethod
        def backward(ctx, g):
            return factor * g

    return Scaled


class Maker:
    def __init__(self):
        class Twice(Function):
            @staticmethod
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            def backward(ctx, g):
                return 2 * g

        self.function = Twice
"""


def test_functions_inside_functions_are_told(commands: Commands, folder: Path) -> None:
    (folder / "local.py").write_text(LOCAL, encoding="utf-8")
    made = commands("init", "local.py")
    assert made.returncode == 2
    said = "gradverify: local.py: 2 Functions defined inside a function; no spec can name them\n"
    assert made.stderr.startswith(f"{said}gradverify: local.py: no function with a gradient in 1 module; ")
    (folder / "local.py").write_text(f"{LOCAL}\nhalve = make(0.5)\n", encoding="utf-8")
    made = commands("init", "local.py")
    assert "local.py:halve" in made.stdout
    assert "gradverify: local.py: 1 Function defined inside a function; no spec can name it\n" in made.stderr


def test_a_folder_of_tests_says_that_tests_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_ops.py").write_text(OPS, encoding="utf-8")
    made = gradverify(tmp_path, "init", "tests")  # in this process, `tests` is a package
    assert made.returncode == 2
    assert made.stderr.startswith("gradverify: tests: no module to look into; tests, setup.py and ")


def test_missing_ends_with_1_until_a_spec_names_it(commands: Commands, folder: Path) -> None:
    before = commands("list", "--missing", "ops.py", "other.yaml")
    assert (before.returncode, before.stdout) == (1, "ops.py:ClippedReLU\n")
    commands("init", "ops.py")
    after = commands("list", "--missing", "ops.py")
    assert (after.returncode, after.stdout) == (0, "")
    assert after.stderr == "gradverify: 1 function, each named by a spec\n"


def test_missing_needs_no_spec_yet(commands: Commands, folder: Path) -> None:
    for _ in range(2):
        before = commands("list", "--missing", "ops.py")
        assert (before.returncode, before.stdout) == (1, "ops.py:ClippedReLU\n")
        (folder / "specs").mkdir(exist_ok=True)


def test_a_module_that_is_no_python_is_told_and_ends_with_1(commands: Commands, folder: Path) -> None:
    (folder / "broken.py").write_text(f"{OPS}\ndef f(:\n", encoding="utf-8")
    for words in (("init", "ops.py", "broken.py"), ("list", "--missing", "ops.py", "--missing", "broken.py")):
        made = commands(*words)
        assert made.returncode == 1
        assert "raised SyntaxError: " in made.stderr
        assert "; its functions are not known\n" in made.stderr


def test_names_with_blanks_stand_in_quotes_where_they_are_part_of_a_command(commands: Commands, folder: Path) -> None:
    (folder / "ops.py").rename(folder / "my ops.py")
    before = commands("list", "--missing", "my ops.py", "other.yaml")
    assert "; `gradverify init 'my ops.py'` writes specs for them\n" in before.stderr
    made = commands("init", "my ops.py", "-o", "my specs")
    assert made.stderr.endswith("; verify them with `gradverify run 'my specs/'`\n")


MODULE = """
import os, time, torch

{at_import}


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {in_forward}
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad
"""
HANG = "open('hangs', 'w').close(); time.sleep(1000)"


def write(folder: Path, name: str, *, at_import: str = "", in_forward: str = "pass") -> None:
    text = MODULE.format(at_import=at_import, in_forward=in_forward)
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


def with_package(folder: Path) -> Path:
    """Write a package whose first and last modules have a right Function each; return the folder."""
    (folder / "several").mkdir()
    (folder / "several" / "__init__.py").touch()
    write(folder / "several", "first")
    write(folder / "several", "last")
    return folder


@pytest.fixture
def package(commands: Commands) -> Path:
    return with_package(commands.folder)


def drafts(folder: Path) -> dict[str, str]:
    """Return why the spec of each module of the package is a draft, "" if it is none."""
    specs = {path.parent.name: path.read_text(encoding="utf-8") for path in folder.rglob("Double.yaml")}
    return {
        name: "".join(row for row in text.splitlines() if row.startswith("draft: ")) for name, text in specs.items()
    }


def test_what_crashes_costs_its_own_function_only(commands: Commands) -> None:
    package = with_package(commands.folder)
    write(package / "several", "crash_forward", in_forward="os.abort()")
    write(package / "several", "crash_import", at_import="os.abort()")
    write(package / "several", "exit_forward", in_forward="os._exit(9)")
    write(package / "several", "exit_import", at_import="os._exit(7)")
    made = commands("init", "several")
    assert made.returncode == 0, made.stderr
    forward = (package / "specs" / "several" / "crash_forward" / "Double.yaml").read_text(encoding="utf-8")
    assert forward.endswith("\ninputs:\n  x: {shape: []}\n")
    crash = (
        "could not infer the inputs: a try crashed: SIGABRT (Aborted), last in several/crash_forward.py:10 in forward"
    )
    assert drafts(package) == {
        "first": "",
        "last": "",
        "crash_forward": f'draft: "{crash}"',
        "crash_import": 'draft: "importing several.crash_import crashed: SIGABRT (Aborted), last in'
        ' several/crash_import.py:4 in <module>; say the inputs"',
        "exit_forward": 'draft: "could not infer the inputs: a try ended the process with exit code 9"',
        "exit_import": 'draft: "importing several.exit_import ended the process with exit code 7; say the inputs"',
    }


def test_a_missing_module_must_be_installed(commands: Commands) -> None:
    package = with_package(commands.folder)
    write(package / "several", "lacks", at_import="import absent")
    made = commands("init", "several")
    assert made.returncode == 0, made.stderr
    reason = "importing several.lacks raised ModuleNotFoundError: No module named 'absent' (several/lacks.py:4)"
    assert drafts(package)["lacks"] == f'draft: "{reason}; `absent` must be installed"'


def test_what_hangs_costs_its_own_function_only(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    package = with_package(commands.folder)
    write(package / "several", "hang_forward", in_forward=HANG)
    write(package / "several", "hang_import", at_import=HANG)
    monkeypatch.setattr(finding, "_TIMEOUT", 3.0)
    monkeypatch.setattr(specs, "_SECONDS", 3.0)
    made = commands("init", "several")
    assert made.returncode == 0, made.stderr
    assert drafts(package) == {
        "first": "",
        "last": "",
        "hang_forward": 'draft: "could not infer the inputs: a try timed out after 3 s, last in'
        ' several/hang_forward.py:10 in forward"',
        "hang_import": 'draft: "importing several.hang_import timed out after 3 s, last in several/hang_import.py:4 in'
        ' <module>; say the inputs"',
    }


def interrupted(package: Path, *words: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of an `init` that gets Ctrl-C once the file `hangs` is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gradverify", "init", "several", *words],
        cwd=package,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    while not (package / "hangs").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_an_interrupt_keeps_what_was_inferred(commands: Commands, package: Path) -> None:
    write(package / "several", "hangs", in_forward=HANG)
    code, out, err = interrupted(package, "--jobs", "1")
    assert (code, drafts(package)) == (130, {"first": ""}), err
    assert out == "several.first:Double\twritten\tspecs/several/first/Double.yaml\tx [3, 4]\n"
    assert err == (
        "gradverify: 1 function: 1 spec written; verify them with `gradverify run specs/`\n"
        "gradverify: interrupted: 1 of 3 functions was done; the same command goes on with the others\n"
    )
    write(package / "several", "hangs")
    again = commands("init", "several")
    assert (again.returncode, drafts(package)) == (0, {"first": "", "hangs": "", "last": ""})


def test_an_interrupt_while_modules_are_imported_writes_nothing(package: Path) -> None:
    write(package / "several", "hangs", at_import=HANG)
    code, out, err = interrupted(package)
    assert (code, out, drafts(package)) == (130, "", {})
    assert err == "gradverify: interrupted while modules were imported; nothing was written\n"


def test_a_package_that_cannot_be_imported_is_told_once(commands: Commands) -> None:
    package = commands.folder / "halfway"
    package.mkdir()
    (package / "__init__.py").write_text("import not_installed_at_all\n", encoding="utf-8")
    for name in ("one", "two", "three"):
        (package / f"{name}.py").write_text("from torch.library import custom_op\n", encoding="utf-8")
    made = commands("init", "halfway")
    assert made.stderr.count("raised ModuleNotFoundError") == 1
    assert "other module" in made.stderr
