"""The files that a case depends on: what its modules import, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.case import Case, Target
from gradverify.concern.concerned import concerned
from gradverify.concern.project import Project

# Files of a project, each with its text.
FILES = {
    "kernels/__init__.py": "from . import registry",
    "kernels/registry.py": "",
    "kernels/norm.py": "from .common import scale\nfrom .. import top\n",
    "kernels/common/__init__.py": "from .inner import *",
    "kernels/common/inner/__init__.py": "",
    "kernels/common/inner/one.py": "import json",
    "kernels/common/unused.py": "",
    "kernels/other.py": "import kernels.norm",
    "top.py": "",
    "alone.py": "def f():\n    if f:\n        import kernels.registry as r\n    else:\n        import fallback\n",
    "fallback.py": "",
    "json.py": "",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Project(root=tmp_path, here=tmp_path)


def selected(project: Project, target: Target, name: str) -> bool:
    case = Case(id="a", draw_key="a", spec="a.yaml", line=1, target=target, inputs={})
    return bool(concerned([case], [project.root / name], project).cases)


def in_module(name: str) -> Target:
    return Target(module=name, name="f", written=f"{name}:f")


def in_file(project: Project, name: str) -> Target:
    return Target(file=str(project.root / name), name="f", written=f"{name}:f")


@pytest.mark.parametrize(
    ("name", "is_reached"),
    [
        ("a.yaml", True),
        ("kernels/norm.py", True),
        ("kernels/__init__.py", True),  # the package of the target
        ("kernels/registry.py", True),  # which it imports
        ("kernels/common/__init__.py", True),
        ("kernels/common/inner/one.py", True),  # by a star
        ("kernels/common/inner/two.py", True),  # likewise, new
        ("kernels/common/scale.py", True),  # new: `from .common import scale` would import it
        ("kernels/common/unused.py", False),
        ("kernels/other.py", False),  # it imports the target, which is the other way round
        ("kernels/norm.txt", False),
        ("fallback.py", False),
        ("alone.py", False),
    ],
)
def test_a_dotted_target_reaches_what_it_imports(project: Project, name: str, is_reached: bool) -> None:
    assert selected(project, in_module("kernels.norm"), name) is is_reached


@pytest.mark.parametrize(
    ("name", "is_reached"),
    [
        ("alone.py", True),
        ("kernels/registry.py", True),
        ("kernels/__init__.py", True),
        ("fallback.py", True),
        ("kernels/norm.py", False),
        ("top.py", False),
        ("kernels/alone.py", False),
    ],
)
def test_a_target_in_a_file_reaches_what_it_imports_inside_functions(
    project: Project, name: str, is_reached: bool
) -> None:
    assert selected(project, in_file(project, "alone.py"), name) is is_reached


def test_modules_that_import_each_other_are_followed_once(project: Project) -> None:
    (project.root / "top.py").write_text("import kernels.other", encoding="utf-8")
    assert selected(project, in_file(project, "top.py"), "kernels/norm.py")
    assert not selected(project, in_file(project, "top.py"), "alone.py")


def test_a_link_reaches_the_file_that_it_leads_to(project: Project) -> None:
    (project.root / "fallback.py").unlink()
    (project.root / "fallback.py").symlink_to(project.root / "top.py")
    assert selected(project, in_file(project, "alone.py"), "top.py")


def test_a_changed_folder_stands_for_the_files_below_it(project: Project) -> None:
    assert selected(project, in_module("kernels.norm"), "kernels/common")
    assert not selected(project, in_file(project, "fallback.py"), "kernels/common")


def test_a_file_that_is_no_python_leaves_its_imports_unknown(project: Project) -> None:
    (project.root / "fallback.py").write_text("import (", encoding="utf-8")
    case = Case(id="a", draw_key="a", spec="a.yaml", line=1, target=in_file(project, "fallback.py"), inputs={})
    found = concerned([case], [project.root / "notes.md"], project)
    assert (found.cases, found.notes) == ((case,), ("fallback.py cannot be read as Python: its cases are included",))


def test_an_installed_package_in_the_project_is_not_followed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = project.root / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "fallback.py").touch()
    monkeypatch.syspath_prepend(str(packages))
    (project.root / "fallback.py").unlink()
    assert not selected(project, in_file(project, "alone.py"), ".venv/lib/site-packages/fallback.py")
