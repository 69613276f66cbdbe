"""What the README shows is what happens: its file, its command, its picture, its figures."""

from __future__ import annotations

import html
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.slow_subject import Variant
from benchmarks.slow_subjects import SUBJECTS
from tests.following import ROOT, without_numbers
from tests.lent import Commands

README = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    return [match["text"] for match in _BLOCK.finditer(README) if match["language"] == language]


def text_in(svg: str) -> str:
    """Return the lines of a picture of a terminal."""
    rows: dict[str, str] = {}
    for row, text in re.findall(r'<text [^>]*clip-path="url\(#terminal-line-(\d+)\)">([^<]*)</text>', svg):
        rows[row] = rows.get(row, "") + " " + html.unescape(text).replace("\xa0", " ")
    return "\n".join(rows.values())


def test_the_first_example_fails_as_pictured(commands: Commands) -> None:
    (commands.folder / "ops.py").write_text(blocks("python")[0], encoding="utf-8")
    command = blocks("console")[0].strip()
    program, *words = shlex.split(command.removeprefix("$ "))
    assert program == "gradverify"
    ran = commands(*words)
    assert ran.returncode == 1, ran.stderr
    pictured = text_in((ROOT / "docs" / "pictures" / "terminal.svg").read_text(encoding="utf-8"))
    shown = ["".join(line.split()) for line in without_numbers(pictured)]
    assert shown == ["".join(line.split()) for line in without_numbers(ran.stdout)]
    commands(*words, "--save", "specs/clipped.yaml")
    saved = (commands.folder / "specs" / "clipped.yaml").read_text(encoding="utf-8")
    assert saved == f"# {command.removeprefix('$ ')}\n{blocks('yaml')[0]}"


def test_figures_beside_gradcheck_are_those_of_the_benchmarks() -> None:
    measured = (ROOT / "docs" / "numerics" / "benchmarks.md").read_text(encoding="utf-8")
    (failed, raised) = re.findall(r"\| torch's gradcheck, slow \| \d+ \| (\d+) \| \d+ \| (\d+) \|", measured)[0]
    variants = len(SUBJECTS) * len(Variant)
    known = {*re.findall(r"\d[\d,.]*\d|\d", measured), str(int(failed) + int(raised)), str(variants)}
    table = README.partition("## gradcheck")[2].partition("## ")[0]
    rows = [line.split("|")[1:] for line in table.splitlines() if line.endswith("` |")]
    assert len(rows) == 7
    for work, *cells, name, _ in rows:
        assert find_spec(f"benchmarks.{name.strip(' `')}") is not None
        figures = re.findall(r"\d[\d,.]*\d|\d", " ".join(cells))
        assert figures
        assert {*figures, *re.findall(r"\d[\d,.]*\d|\d", re.sub(r"1e-\d|64×32", "", work))} <= known, work


def test_the_example_for_pytest_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "pytest.md").read_text(encoding="utf-8")
    (example,) = (match["text"] for match in _BLOCK.finditer(page) if match["language"] == "python")
    scope: dict[str, Any] = {}
    exec(compile(example, "pytest.md", "exec"), scope)
    scope["test_gelu"]()
