"""`--changed-since REV` selects the cases whose spec, code or data differ from a git revision."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gradverify.cli.app import app

FUNCTION = "def {0}(x):\n    return x * 2\n"
SPEC = "function: ../{0}.py:{0}\ninputs: {{x: {{shape: [2]}}}}\n"


def git(*words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cases; the code of `double` imports helpers, which imports deep."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    write("double.py", "from helpers import scale\n" + FUNCTION.format("double"))
    write("helpers.py", "def scale(x):\n    from deep import FACTOR\n\n    return x * FACTOR\n")
    write("deep.py", "FACTOR = 2\n")
    write("square.py", FUNCTION.format("square"))
    for name in ("double", "square"):
        write(f"specs/{name}.yaml", SPEC.format(name))
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "one")
    return tmp_path


@pytest.fixture
def listed(repository: Path) -> Callable[..., tuple[list[str], str]]:
    """Return the first parts of the ids that are listed, and stderr."""

    def call(revision: str = "HEAD", *words: str) -> tuple[list[str], str]:
        result = CliRunner().invoke(app, ["list", "--changed-since", revision, *words])
        assert result.exit_code == 0, result.stderr
        return [row.partition("/")[0] for row in result.stdout.splitlines()], result.stderr

    return call


NOTHING = ([], "gradverify: no case is concerned by what changed since HEAD\n")
DOUBLE = (["double"], "gradverify: --changed-since HEAD: 1 changed file concerns 1 of 2 cases\n")


def test_nothing_changed(listed) -> None:
    assert listed() == NOTHING


@pytest.mark.parametrize("name", ["specs/double.yaml", "double.py", "helpers.py", "deep.py"])
def test_a_changed_spec_target_or_import_selects_its_case(listed, name: str) -> None:
    with Path(name).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert listed() == DOUBLE


def test_a_changed_file_that_nothing_imports_selects_no_case(listed) -> None:
    write("deeper.py", "FACTOR = 2\n")
    write("notes.md", "deep\n")
    assert listed() == NOTHING


def test_changes_count_committed_staged_unstaged_and_untracked(listed) -> None:
    write("deep.py", "FACTOR = 3\n")
    assert listed() == DOUBLE
    git("add", "deep.py")
    assert listed() == DOUBLE
    git("commit", "-qm", "two")
    assert listed() == NOTHING
    assert listed("HEAD~1")[0] == ["double"]
    write("deep/__init__.py", "FACTOR = 4\n")  # untracked, and found before deep.py
    assert listed() == DOUBLE


def test_a_staged_change_counts_also_if_the_file_was_put_back(listed) -> None:
    write("deep.py", "FACTOR = 3\n")
    git("add", "deep.py")
    write("deep.py", "FACTOR = 2\n")
    assert listed() == DOUBLE


@pytest.mark.parametrize("how", ["rm", "mv"])
def test_a_deleted_or_renamed_import_counts_as_changed(listed, how: str) -> None:
    git(how, "deep.py", *(["moved.py"] if how == "mv" else []))
    assert listed()[0] == ["double"]


def test_a_new_spec_is_selected(listed) -> None:
    write("specs/third.yaml", SPEC.format("square"))
    assert listed()[0] == ["third"]


def test_paths_are_relative_to_the_repository_also_in_a_folder_below(listed, monkeypatch) -> None:
    write("deep.py", "FACTOR = 3\n")
    monkeypatch.chdir("specs")
    assert listed("HEAD", ".")[0] == ["double"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("uv.lock", "uv.lock changed"),
        ("setup.py", "setup.py changed"),
        ("requirements-dev.txt", "requirements-dev.txt changed"),
        ("known.yaml", "known.yaml changed"),
    ],
)
def test_a_file_that_may_concern_every_case_selects_all(listed, name: str, why: str) -> None:
    write("pyproject.toml", '[tool.gradverify]\nbaseline = "known.yaml"\n')
    git("add", "pyproject.toml")
    git("commit", "-qm", "settings")
    write(name, "version: 1\nknown: []\n")
    told = f"gradverify: --changed-since HEAD: {why}, which may concern every case\n"
    assert listed() == (["double", "square"], told)


@pytest.mark.parametrize(
    "line",
    [
        "exec(open('x').read())",
        "import importlib\nimportlib.import_module('d' + 'eep')",
        "import importlib\nload = importlib.import_module; load('deep')",
        "import imp\nimp.load_source('deep', 'lib/deep.py')",
        "import sys\nsys.path",
        "import sys as _sys\n_sys.path.insert(0, 'lib')",
        "from sys import path",
        "import site\nsite.addsitedir('lib')",
        "__path__.append('lib')",
    ],
)
def test_a_target_whose_imports_cannot_be_told_is_included_if_anything_changed(listed, line: str) -> None:
    write("square.py", f"{line}\n")
    git("commit", "-qam", "computed")
    assert listed() == NOTHING
    write("notes.md", "changed\n")
    cases, told = listed()
    assert cases == ["square"]
    number = line.count("\n") + 1
    why = f"square.py imports or runs code by a computed name in line {number}: its cases are included"
    assert told.splitlines()[0] == f"gradverify: --changed-since HEAD: {why}"


def test_an_import_by_a_constant_name_is_followed(listed) -> None:
    write("square.py", "from importlib import import_module as load\ndeep = load('deep')\n")
    git("commit", "-qam", "constant")
    write("notes.md", "changed\n")
    assert listed() == NOTHING
    write("deep.py", "FACTOR = 3\n")
    assert listed()[0] == ["double", "square"]


def test_a_module_that_was_not_found_is_included(listed) -> None:
    write("specs/square.yaml", SPEC.format("square").replace("../square.py", "nowhere.at_all"))
    git("commit", "-qam", "module")
    write("notes.md", "changed\n")
    cases, told = listed()
    assert (cases, told.splitlines()[0]) == (
        ["square"],
        "gradverify: --changed-since HEAD: the module nowhere.at_all was not found: its cases are included",
    )


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("from torch.utils import cpp_extension", "kernel.cu"),
        ("from torch.utils import cpp_extension", "kernel.inl"),
        ("from torch.utils import cpp_extension", "kernel.hip"),
        ("import torch\ntorch.ops.load_library('x')", "kernel.cu"),
        ("import ctypes\nctypes.cdll.LoadLibrary('x.so')", "kernel.c"),
        ("import pyximport", "kernel.pyx"),
    ],
)
def test_a_changed_source_in_cpp_selects_the_cases_that_load_extensions(listed, line: str, source: str) -> None:
    write("deep.py", f"{line}\nFACTOR = 2\n")
    git("commit", "-qam", "native")
    write(f"csrc/{source}", "")
    assert listed() == DOUBLE


def test_specs_outside_of_the_repository_are_included(listed, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    write(str(other / "there.py"), FUNCTION.format("there"))
    write(str(other / "there.yaml"), SPEC.format("there").replace("../", ""))
    cases, told = listed("HEAD", str(other), "specs")
    assert (len(cases), "is outside of this repository: its cases are included" in told) == (1, True)


def test_reference_surrogate_factory_and_data_are_followed(listed) -> None:
    write("deep_reference.py", FUNCTION.format("plain"))
    write("made.py", FUNCTION.format("made"))
    write("values.npy", "")
    write("smooth.py", FUNCTION.format("smooth"))
    write(
        "specs/square.yaml",
        "function: ../square.py:square\nreference: ../deep_reference.py:plain\nsurrogate: ../smooth.py:smooth\n"
        "inputs: {x: {factory: '../made.py:made'}, y: {file: ../values.npy}}\n",
    )
    git("add", "-A")
    git("commit", "-qm", "more")
    assert listed() == NOTHING
    for name in ("deep_reference.py", "made.py", "values.npy", "smooth.py"):
        write(name, "# changed\n")
        assert listed()[0] == ["square"], name
        git("checkout", "-q", name)


def test_an_unknown_revision_is_a_usage_problem(repository) -> None:
    for words in (["list"], ["run"]):
        result = CliRunner().invoke(app, [*words, "--changed-since", "nope"])
        why = "git knows no such revision; name a commit, branch or tag, as HEAD or origin/main"
        told = f"gradverify: --changed-since nope: {why}; a shallow clone has to fetch it first\n"
        assert (result.exit_code, result.stderr, result.stdout) == (2, told, "")


def test_without_a_repository_or_git_every_case_is_selected(listed, monkeypatch) -> None:
    Path(".git").rename(".kept")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(Path.cwd().parent))
    why = "this folder is in no git repository, so every case is included"
    assert listed() == (["double", "square"], f"gradverify: --changed-since HEAD: {why}\n")
    monkeypatch.setenv("PATH", str(Path.cwd()))
    why = "git was not found, so every case is included"
    assert listed() == (["double", "square"], f"gradverify: --changed-since HEAD: {why}\n")


def test_it_goes_together_with_other_selections(listed) -> None:
    write("deep.py", "FACTOR = 3\n")
    assert listed("HEAD", "-k", "square") == NOTHING
    parts = [listed("HEAD", "--shard", f"{part}/2")[0] for part in (1, 2)]
    assert sorted(parts) == [[], ["double"]]


def test_run_runs_what_is_concerned(fake: Any, call: Any) -> None:
    from report_specimens import case, masked

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", "one")
    fake.results = [case("a/one/cpu", spec="a.yaml"), masked()]
    nothing = call("run", "a.yaml", "--changed-since", "HEAD", "--json", "out.json")
    assert (nothing.exit_code, fake.ran) == (0, [])
    assert nothing.stderr == "gradverify: no case is concerned by what changed since HEAD\n"
    assert json.loads(Path("out.json").read_text(encoding="utf-8"))["cases"] == []
    write("a.yaml", "")
    assert call("run", "a.yaml", "--changed-since", "HEAD").exit_code == 0
    assert fake.ran == ["a/one/cpu"]
