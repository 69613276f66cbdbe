"""`init` and `list --missing` on one file: what is printed, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.author.test_authoring_page import OPS

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(OPS, encoding="utf-8")
    (tmp_path / "other.yaml").write_text("function: a.b:F\ndraft: later\ninputs: {x: 1}\n", encoding="utf-8")
    return tmp_path


def gradverify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradverify", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONUTF8": "1"})


def test_the_spec_of_a_wrong_function_fails(folder: Path) -> None:
    made = gradverify(folder, "init", "ops.py")
    assert (made.returncode, made.stdout) == (
        0,
        "ops.py:ClippedReLU\twritten\tspecs/ops/ClippedReLU.yaml\tx [3, 4], clip 1.5\n",
    )
    assert made.stderr == "gradverify: 1 function: 1 spec written; verify them with `gradverify run specs/`\n"
    ran = gradverify(folder, "run", "specs")
    assert (ran.returncode, "cause missing-mask" in ran.stdout) == (1, True)


def test_a_file_that_is_there_is_not_replaced(folder: Path) -> None:
    spec = folder / "specs" / "ops" / "ClippedReLU.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text("# mine\n", encoding="utf-8")
    made = gradverify(folder, "init", "ops.py")
    assert (made.returncode, made.stdout) == (
        0,
        "ops.py:ClippedReLU\texists\tspecs/ops/ClippedReLU.yaml\tnot replaced\n",
    )
    assert spec.read_text(encoding="utf-8") == "# mine\n"


@pytest.mark.parametrize(
    ("place", "said"),
    [("nowhere", "nowhere: there is no such package, module, file or folder; "), ("other.yaml", "other.yaml: ")],
)
def test_without_a_package_it_is_usage(folder: Path, place: str, said: str) -> None:
    made = gradverify(folder, "init", place)
    assert (made.returncode, made.stdout) == (2, "")
    assert made.stderr.startswith(f"gradverify: {said}")


def test_nothing_found_says_what_was_looked_for(folder: Path) -> None:
    (folder / "plain.py").write_text("x = 1\n", encoding="utf-8")
    made = gradverify(folder, "init", "plain.py")
    assert made.returncode == 2
    assert made.stderr.startswith(
        "gradverify: plain.py: no function with a gradient in 1 module; looked for subclasses of"
    )


def test_missing_ends_with_1_until_a_spec_names_it(folder: Path) -> None:
    before = gradverify(folder, "list", "--missing", "ops.py", "other.yaml")
    assert (before.returncode, before.stdout) == (1, "ops.py:ClippedReLU\n")
    gradverify(folder, "init", "ops.py")
    after = gradverify(folder, "list", "--missing", "ops.py")
    assert (after.returncode, after.stdout) == (0, "")
    assert after.stderr == "gradverify: 1 function, each named by a spec\n"
