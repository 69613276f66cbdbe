"""Which files are read, and what is said of those that cannot be."""

from __future__ import annotations

import os

import pytest

from gradverify.spec.limits import MAX_BYTES
from gradverify.spec.read import read_paths
from tests.spec.support import TENSOR, Folder

MODULE = TENSOR.replace("ops/relu.py", "pkg.mod")


def errors(*paths: str) -> list[str]:
    return [str(error) for error in read_paths(paths).errors]


def test_folders_are_read_below_sorted_and_without_hidden_ones(folder: Folder) -> None:
    for name in ("b.yml", "a.yaml", "sub/deep/c.yaml", ".hidden/d.yaml", "sub/.e.yaml", "f.json"):
        folder.write(name, MODULE)
    assert [spec.file for spec in read_paths(["."]).specs] == ["a.yaml", "b.yml", "sub/deep/c.yaml"]


def test_a_file_named_twice_is_read_once(folder: Folder) -> None:
    folder.write("sub/a.yaml", MODULE)
    reading = read_paths(["sub/a.yaml", "sub", "sub/../sub/a.yaml"])
    assert [spec.file for spec in reading.specs] == ["sub/a.yaml"]


def test_other_files_are_read_where_one_has_mistakes(folder: Folder) -> None:
    folder.write("a.yaml", MODULE)
    folder.write("b.yaml", MODULE + "---\n" + MODULE + "sed: 1\n")
    folder.write("sub/c.yaml", MODULE)
    reading = read_paths(["b.yaml", "a.yaml", "sub/c.yml"])
    assert [spec.file for spec in reading.specs] == ["a.yaml"]
    assert [str(error) for error in reading.errors] == [
        "b.yaml:6:1: sed: unknown key (did you mean `seed`?)",
        "sub/c.yml:1:1: no such file or folder (did you mean `sub/c.yaml`?)",
    ]


def test_paths_that_name_no_spec(folder: Folder) -> None:
    (folder.path / "empty").mkdir()
    os.mkfifo(folder.path / "pipe.yaml")
    assert errors("nowhere.yaml") == ["nowhere.yaml:1:1: no such file or folder"]
    folder.write("wide.yaml", MODULE)
    assert errors("bad.yaml") == ["bad.yaml:1:1: no such file or folder"]  # alike in the ending alone
    assert errors("wade.yaml") == ["wade.yaml:1:1: no such file or folder (did you mean `wide.yaml`?)"]
    hint = "specs end in .yaml or .yml; `gradverify init PACKAGE` writes some"
    assert errors("empty") == [f"empty:1:1: no spec in this folder ({hint})"]
    assert errors("x.txt") == ["x.txt:1:1: not a spec (specs end in .yaml or .yml)"]
    assert errors("pipe.yaml") == ["pipe.yaml:1:1: not a regular file"]
    assert errors("a\0b") == [r"a\x00b:1:1: no such file or folder"]
    assert errors("\x1b[2J") == [r"\x1b[2J:1:1: no such file or folder"]
    assert len(errors("x" * 5000)) == 1
    assert errors() == [".:1:1: nothing to read (name a spec, or a folder with specs)"]


@pytest.mark.parametrize("text", ["version: 2\nknown: []\n", "known:\n  - case: a\nversion: 1\n"])
def test_a_baseline_in_a_folder_is_left_out_and_by_name_a_mistake(folder: Folder, text: str) -> None:
    folder.write("a.yaml", MODULE)
    folder.write("known.yaml", text)
    reading = read_paths(["."])
    assert ([spec.file for spec in reading.specs], reading.errors) == (["a.yaml"], ())
    said = ["known.yaml:1:1: this is a baseline, not a spec (pass it with --baseline known.yaml)"]
    assert errors("known.yaml") == errors(".", "known.yaml") == said


def test_a_file_with_one_key_of_a_baseline_is_read_as_a_spec(folder: Folder) -> None:
    folder.write("a.yaml", MODULE + "version: 2\n")
    assert errors(".") == ["a.yaml:3:1: version: unknown key (did you mean `precision`?)"]


def test_a_folder_that_cannot_be_read_is_one_mistake(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def scandir(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    (folder.path / "locked").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    assert errors("locked") == ["locked:1:1: cannot be read: Permission denied"]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("spces", "specs"),
        ("spces/", "specs"),
        ("specs/iner", "specs/inner"),
        ("specs/iner/clipped.yaml", "specs/inner/clipped.yaml"),
        ("spec/inner/clipped.yaml", "specs/inner/clipped.yaml"),
        ("spec/inner/gone.yaml", "specs"),
        ("specs/inner/clipped", "specs/inner/clipped.yaml"),
        ("./spec", "specs"),
        ("elsewhere", ""),
        ("", ""),
        ("specs/.hiden", ""),
        ("specs/inner/clipped.yaml/x.yaml", ""),
    ],
)
def test_a_folder_that_was_mistyped(folder: Folder, path: str, near: str) -> None:
    folder.write("specs/inner/clipped.yaml", MODULE)
    folder.write("specs/.hidden/a.yaml", MODULE)
    hint = f" (did you mean `{near}`?)" if near else ""
    expected = [f"{path.strip('/').removeprefix('./')}:1:1: no such file or folder{hint}"] if path else []
    assert errors(path) == expected


def test_links_that_lead_nowhere(folder: Folder) -> None:
    folder.write("specs/a.yaml", MODULE)
    (folder.path / "specs" / "gone.yaml").symlink_to("nowhere.yaml")
    (folder.path / "specs" / "self.yaml").symlink_to("self.yaml")
    (folder.path / "specs" / "gone.txt").symlink_to("nowhere.txt")
    assert errors("specs/gone.yaml") == ["specs/gone.yaml:1:1: a link that leads nowhere"]
    assert errors("specs") == [
        "specs/gone.yaml:1:1: a link that leads nowhere",
        "specs/self.yaml:1:1: a link that leads nowhere",
    ]
    os.mkfifo(folder.path / "specs" / "pipe.yaml")
    assert "specs/pipe.yaml:1:1: not a regular file" in errors("specs")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read(folder: Folder) -> None:
    folder.write("a.yaml", MODULE)
    (folder.path / "a.yaml").chmod(0)
    assert errors("a.yaml") == ["a.yaml:1:1: cannot be read: Permission denied"]


def test_a_large_file_is_not_read(folder: Folder) -> None:
    folder.write("a.yaml", b"#" * (MAX_BYTES + 1))
    assert errors("a.yaml") == ["a.yaml:1:1: larger than 4 MiB (large values belong into a `file:`)"]


def test_functions_are_found_relative_to_the_spec(folder: Folder) -> None:
    folder.write("sub/a.yaml", TENSOR.replace("ops/", "../ops/"))
    folder.write("sub/b.yaml", TENSOR.replace("ops/", f"{folder.path}/ops/"))
    targets = [spec.cases[0].target.file for spec in read_paths(["sub"]).specs]
    assert targets == [str(folder.path / "ops" / "relu.py")] * 2
