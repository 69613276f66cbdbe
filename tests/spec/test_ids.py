"""The first part of an id depends on the project root and the spec's path, not on the paths that were given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath

import pytest
from typer.testing import CliRunner

from gradverify.cli.app import app
from gradverify.spec.read import read_paths
from tests.spec.support import Folder

SPEC = "function: pkg.mod:F\ninputs: {x: {shape: [2]}}\n"


def names(*paths: str | Path) -> list[str]:
    result = CliRunner().invoke(app, ["list", *map(str, paths)])
    assert result.exit_code == 0, result.stderr
    return [row.partition("\t")[0].removesuffix("/F/cpu-float64") for row in result.stdout.splitlines()]


def written(folder: Folder, files: Iterable[str]) -> None:
    for name in files:
        folder.write(name, SPEC)


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git"])
def test_ids_do_not_depend_on_the_paths_given(folder: Folder, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.path / mark).touch()
    written(folder, ("specs/a/same.yaml", "specs/b/same.yaml", "other/c.yml", "top.yaml"))
    assert names("specs", "other", "top.yaml") == ["a/same", "b/same", "other/c", "top"]
    assert names("specs/b", "specs/a") == ["b/same", "a/same"]
    assert names("specs/a/same.yaml") == ["a/same"]
    monkeypatch.chdir(folder.path / "specs" / "a")
    assert names(".", "../../other", folder.path / "top.yaml") == ["a/same", "other/c", "top"]


def test_the_nearest_project_counts(folder: Folder) -> None:
    (folder.path / ".git").mkdir()
    written(folder, ("packages/ops/specs/a.yaml", "packages/nn/specs/a.yaml", "packages/nn/specs/deep/b.yaml"))
    (folder.path / "packages/ops/pyproject.toml").touch()
    assert names("packages/ops", "packages/nn") == ["a", "packages/nn/specs/a", "packages/nn/specs/deep/b"]
    (folder.path / "packages/nn/pyproject.toml").touch()
    assert names("packages/nn") == ["a", "deep/b"]


def test_only_one_leading_folder_named_specs_is_left_out(folder: Folder) -> None:
    written(folder, ("specs/specs/a.yaml", "specs/specs.yaml", "sub/specs/b.yaml"))
    assert names(".") == ["specs", "specs/a", "sub/specs/b"]


def test_without_a_project_ids_start_at_the_working_directory(folder: Folder) -> None:
    written(folder, ("specs/a.yaml", "sub/b.yaml"))
    assert names("specs", "sub") == ["a", "sub/b"]


def test_outside_of_any_project_and_of_the_working_directory_ids_are_absolute(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, ("specs/a.yaml", "work/specs/b.yaml"))
    absolute = str(folder.path / "specs" / "a")
    for place, given in (("work", "../specs"), ("work/specs", folder.path / "specs/a.yaml")):
        monkeypatch.chdir(folder.path / place)
        assert names(given) == [absolute]


def test_characters_that_would_break_an_id_are_replaced(folder: Folder) -> None:
    written(folder, ("my specs/my spec.yaml", "_private.yaml", "private.yaml", "a.b.yaml", "ünï.yaml"))
    assert names(".") == ["_private", "a.b", "private", "ünï", "my_specs/my_spec"]


TWINS = [("a.yaml", "a.yml"), ("a.yaml", "specs/a.yaml"), ("my_a.yaml", "my a.yaml"), ("x y/a.yaml", "x_y/a.yaml")]


@pytest.mark.parametrize("files", TWINS, ids=" ".join)
def test_two_specs_with_the_same_ids_are_both_a_mistake(folder: Folder, files: tuple[str, str]) -> None:
    written(folder, (*files, "fine.yaml"))
    for given in (files, files[::-1]):
        reading = read_paths([*given, "fine.yaml"])
        assert [spec.name for spec in reading.specs] == ["fine"]
        assert {str(error) for error in reading.errors} == {
            f"{own}:1:1: the ids of its cases would begin with `{_start(files)}/`, as do those of {other}"
            " (rename one of the files: an id is a spec's path without suffix and leading specs/)"
            for own, other in (files, files[::-1])
        }
    assert len(names(files[0])) == len(names(files[1])) == 1


def _start(files: tuple[str, str]) -> str:
    return str(PurePath(files[0]).with_suffix("")).replace(" ", "_")
