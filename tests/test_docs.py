"""Constants in docs/numerics/ have the values of the code, the tests named there exist, examples run, links resolve."""

from __future__ import annotations

import re
import sys
import unicodedata
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from gradverify import verify
from tests.lent import Commands

ROOT = Path(__file__).parent.parent
NUMERICS = sorted((ROOT / "docs" / "numerics").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "AGENTS.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = {"eps": torch.finfo(torch.float64).eps, "range": range, "tuple": tuple} | {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
ROOMS = ("tuning", "model", "forward", "backward", "estimate", "decide", "strategy", "jacobians")  # of core
EXAMPLE = re.compile(r"```python\n(.*?)```\n(.*?)(?=\n##|\Z)", re.DOTALL)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def constants() -> list[tuple[str, str]]:
    rows = (re.findall(r"^\| `([\w.]+)` \| `([^`]+)` \|", text_of(page), re.MULTILINE) for page in NUMERICS)
    return [row for page in rows for row in page]


def value_in_code(name: str) -> Any:
    module, constant = name.rsplit(".", 1)
    home = f"gradverify.core.{module}"
    return getattr(import_module(home if module.startswith(ROOMS) else f"gradverify.{module}"), constant)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    kept = ("".join(c for c in title.lower() if c in "-_ " or unicodedata.category(c)[0] in "LN") for title in titles)
    return {title.replace(" ", "-") for title in kept}


@pytest.mark.parametrize(("name", "value"), constants())
def test_constant_has_the_value_of_the_code(name: str, value: str) -> None:
    assert eval(value, {"__builtins__": {}}, NAMES) == value_in_code(name)


@pytest.mark.parametrize("page", NUMERICS, ids=lambda page: page.name)
def test_named_tests_and_commands_exist(page: Path) -> None:
    for file, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text_of(page)):
        assert f"def {name}(" in text_of(ROOT / file), f"{file}::{name}"
    for module in re.findall(r"python -m\s+((?:benchmarks|tests)[\w.]*\w)", text_of(page)):
        assert find_spec(module) is not None, module


@pytest.mark.parametrize("page", [page for page in NUMERICS if page.stem not in ("README", "benchmarks")], ids=str)
def test_example_prints_the_same_words(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers are left out: another machine rounds otherwise."""
    ((code, after),) = EXAMPLE.findall(text_of(page))
    exec(compile(code, page.name, "exec"), {"__name__": page.stem})
    shown = "\n".join(line for line in after.splitlines() if line.startswith("    "))
    printed = capsys.readouterr().out
    for words in (re.findall(r"[a-z]{3,}", text) for text in printed.splitlines()):
        assert words in [re.findall(r"[a-z]{3,}", text) for text in shown.splitlines()]


def worked_examples() -> list[tuple[float, list[str]]]:
    """Return the points of the worked examples, and the functions that each names in its table."""
    _, *sections = re.split(r"^## x = ", text_of(ROOT / "docs" / "numerics" / "worked-examples.md"), flags=re.MULTILINE)
    return [
        (float(section.split()[0].replace("−", "-")), re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE))
        for section in sections
    ]


@pytest.mark.parametrize(("at", "named"), worked_examples(), ids=str)
def test_functions_of_a_worked_example_run_in_this_order(at: float, named: list[str]) -> None:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clamp(0.0, 1.0)

        @staticmethod
        def backward(ctx: Any, cotangent: torch.Tensor) -> torch.Tensor:
            return cotangent

    called: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and module.startswith("gradverify.core."):
            called.append(f"{module.removeprefix('gradverify.core.')}.{frame.f_code.co_qualname}")

    x = torch.tensor([at], dtype=torch.float64, requires_grad=True)
    sys.setprofile(note)
    try:
        (check,) = verify(Clip, (x,), checks=("gradcheck",)).checks
    finally:
        sys.setprofile(None)
    left = iter(called)
    assert [name for name in named if name not in left] == []  # `in` takes names from `left` up to the one found
    assert (check.mismatched, check.kinks) == ((1, 0) if at < 0 else (0, 1) if at == 0 else (0, 0))


def explore_blocks() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for language, text in re.findall(r"```(\w+)\n(.*?)```", text_of(ROOT / "docs" / "explore.md"), re.DOTALL):
        found.setdefault(language, []).append(text)
    return found


def lines_of_words(text: str) -> list[list[str]]:
    return [re.findall(r"[a-z]{3,}", line) for line in text.splitlines()]


@pytest.mark.slow
def test_page_of_explore_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    exec(compile("".join(explore_blocks()["python"]), "explore.md", "exec"), {"__name__": "pool"})
    assert lines_of_words(capsys.readouterr().out) == lines_of_words(explore_blocks()["text"][0])


@pytest.mark.slow
def test_page_of_explore_shows_the_screen(commands: Commands) -> None:
    blocks = explore_blocks()
    (commands.folder / "pool.py").write_text(blocks["python"][0], encoding="utf-8")
    (commands.folder / "pool.yaml").write_text(blocks["yaml"][0], encoding="utf-8")
    command, _, expected = blocks["console"][0].partition("\n")
    ran = commands(*command.removeprefix("$ gradverify ").split())
    assert ran.returncode == 1, ran.stderr
    assert lines_of_words(ran.stdout) == lines_of_words(expected)
    assert (commands.folder / "found" / "pool-stride.yaml").exists()


@pytest.mark.slow
def test_page_of_record_shows_the_screen_and_the_spec(commands: Commands, capfd: pytest.CaptureFixture[str]) -> None:
    page = text_of(ROOT / "docs" / "authoring.md").partition("## record")[2]
    blocks = dict(reversed(re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)))
    (commands.folder / "scale.py").write_text(blocks["python"], encoding="utf-8")
    command, _, shown = blocks["console"].partition("\n")
    assert command == "$ gradverify record -- python scale.py"
    ran = commands("record", "--", sys.executable, "scale.py")
    assert ran.returncode == 0, ran.stderr
    printed = capfd.readouterr().out  # by the recorded command
    assert printed + ran.stdout + ran.stderr == shown
    spec = (commands.folder / "specs" / "scale" / "Scale.yaml").read_text(encoding="utf-8")
    assert spec.partition("\n")[2] == blocks["yaml"].partition("\n")[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose):
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target
