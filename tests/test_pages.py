"""Get started and the FAQ show what happens; the site has a page for each public name, and rejects broken links."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gradverify
from tests.following import ROOT, follow, main, printed, refreshed, without_numbers
from tests.lent import Commands

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

SAVED = re.compile(r"^```yaml\n(# gradverify check .*?)^```$", re.DOTALL | re.MULTILINE)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["docs/agents.md", "docs/get-started.md", "docs/faq.md"])
def test_commands_of_page_print_what_is_shown(name: str, commands: Commands) -> None:
    def run(command: str, folder: Path) -> str:
        program, *words = shlex.split(command)
        if program != "gradverify":
            return printed(command, folder)
        ran = commands(*words)
        return ran.stdout + ran.stderr

    steps = follow(text_of(name), commands.folder, run)
    assert len(steps) >= 2
    for step in steps:
        assert without_numbers(step.printed) == without_numbers(step.shown), step.command
    written = [file.read_text(encoding="utf-8") for file in commands.folder.rglob("*.yaml")]
    assert all(saved in written for saved in SAVED.findall(text_of(name)))


def test_python_of_get_started_runs() -> None:
    (example,) = PYTHON.findall(text_of("docs/get-started.md"))
    exec(compile(example, "get-started.md", "exec"), {})


def test_follower_writes_files_and_replaces_what_commands_print() -> None:
    page = '```python title="a.py"\nprint("new")\n```\n\n```console\n$ python a.py\n{}```\n'
    assert refreshed(page.format("old\n")) == refreshed(page.format("")) == page.format("new\n")


def test_follower_takes_names_of_pages_or_says_in_a_sentence_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("```console\n$ python --version\n```\n", encoding="utf-8")
    assert main([str(tmp_path / "a.md")]) == ""
    assert "\nPython 3" in (tmp_path / "a.md").read_text(encoding="utf-8")
    assert main([]).startswith("name a page;")
    assert main([str(tmp_path / "a.md"), "b.md"]).startswith("no such page: b.md;")


def test_page_of_the_api_names_every_public_name() -> None:
    documented = re.findall(r"^::: gradverify\.(\w+)$", text_of("docs/api.md"), re.MULTILINE)
    assert sorted([*documented, "__version__"]) == sorted(gradverify.__all__)


def hook() -> ModuleType:
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("hook", ROOT / "docs" / "site" / "hook.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "page", "link", "expected"),
    [
        ("README.md", "index.md", "[a](docs/spec.md#draft)", "[a](spec.md#draft)"),
        ("README.md", "index.md", "![a](docs/pictures/a.svg)", "![a](pictures/a.svg)"),
        ("README.md", "index.md", "[LICENSE](LICENSE)", "LICENSE"),
        ("docs/numerics/decide.md", "numerics/decide.md", "[a](../../CONTRIBUTING.md#x)", "[a](../contributing.md#x)"),
        ("docs/spec.md", "spec.md", "[a](https://x.org)", "[a](https://x.org)"),
        ("docs/spec.md", "spec.md", "[a](missing.md)", "[a](missing.md)"),
        ("docs/spec.md", "spec.md", "[a](../missing.md)", "[a](../missing.md)"),
        ("docs/spec.md", "spec.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
    ],
)
def test_links_are_rewritten_for_the_site(source: str, page: str, link: str, expected: str) -> None:
    assert hook().for_site(link, source, page) == expected


def test_parts_of_a_page_stand_under_its_title_on_the_site() -> None:
    page = "a\n\n# b\n\n```python\n# c\n```\n\n## d\n"
    assert hook().under_title("T", page) == "# T\n\na\n\n## b\n\n```python\n# c\n```\n\n### d\n"


@pytest.mark.slow
def test_each_broken_link_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    wrong = ("missing.md", "spec.md#missing", "../missing.py")
    links = " ".join(f"[a]({target})" for target in ("spec.md", *wrong))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A\n\n{links}\n", encoding="utf-8")
    (tmp_path / "docs" / "spec.md").write_text("# B\n", encoding="utf-8")
    settings = text_of("mkdocs.yml")
    kept = [settings[settings.index("validation:") : settings.index("nav:")]]
    kept += ["site_name: a\nstrict: true\nnav: [index.md, spec.md]\n", f"docs_dir: {tmp_path / 'docs'}\n"]
    (tmp_path / "mkdocs.yml").write_text("".join(kept), encoding="utf-8")
    ran = subprocess.run([sys.executable, "-m", "mkdocs", "build"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1
    said = ran.stderr + ran.stdout
    assert "Aborted with 3 warnings in strict mode" in said
    assert all(f"'{target}'" in said for target in wrong)
