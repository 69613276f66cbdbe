"""What the README shows is what happens: its files, its command, its output, its Python."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    return [match["text"] for match in _BLOCK.finditer(README) if match["language"] == language]


def without_numbers(text: str) -> list[str]:
    """Digits, and the spaces that line them up, differ from one machine to the next; words do not."""
    return [" ".join(re.sub(r"\d[\d.]*(e[-+]?\d+)?", "#", line).split()) for line in text.splitlines() if line.strip()]


def test_the_first_example_fails_as_shown(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(blocks("python")[0], encoding="utf-8")
    shown = blocks("console")[0]
    command, expected = shown.split("\n", 1)
    program, *words = shlex.split(command.removeprefix("$ "))
    assert program == "gradverify"
    ran = gradverify(tmp_path, *words)
    assert ran.returncode == 1, ran.stderr
    assert without_numbers(ran.stdout) == without_numbers(expected)
    gradverify(tmp_path, *words, "--save", "specs/clipped.yaml")
    saved = (tmp_path / "specs" / "clipped.yaml").read_text(encoding="utf-8")
    assert saved == f"# {command.removeprefix('$ ')}\n{blocks('yaml')[0]}"


def gradverify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gradverify", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONUTF8": "1"},
    )


def test_the_python_example_runs() -> None:
    exec(compile(blocks("python")[1], "README.md", "exec"), {})


def test_the_example_of_explore_prints_what_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    _, first, second = blocks("python")
    exec(compile(f"{first}\n{second}", "README.md", "exec"), {"__name__": "readme"})
    assert without_numbers(capsys.readouterr().out) == without_numbers(blocks("text")[0])


def test_the_example_for_pytest_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "pytest.md").read_text(encoding="utf-8")
    (example,) = (match["text"] for match in _BLOCK.finditer(page) if match["language"] == "python")
    scope: dict[str, Any] = {}
    exec(compile(example, "pytest.md", "exec"), scope)
    scope["test_gelu"]()
