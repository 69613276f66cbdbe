"""Targets are loaded by file or dotted name; each mistake has its own message."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradverify.case import Absence, Target
from gradverify.run.load import LoadError, load
from gradverify.run.siblings import importable
from tests.run.making import OPS, target


def problem_of(wanted: Target):
    with pytest.raises(LoadError) as caught:
        load(wanted)
    return caught.value.problem


def test_a_file_is_imported_once() -> None:
    assert load(target("Square")) is load(target("Square"))


def test_a_nested_name() -> None:
    assert load(target("Nested.inner")) is load(target("Square"))


def test_a_dotted_module() -> None:
    import json

    assert load(Target(module="json", name="dumps", written="json:dumps")) is json.dumps


def test_a_dotted_module_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here_xyz.py").write_text("def f(x):\n    return x\n")
    monkeypatch.chdir(tmp_path)
    assert load(Target(module="only_here_xyz", name="f", written="only_here_xyz:f"))(1) == 1
    assert "only_here_xyz" not in sys.modules and str(tmp_path) not in sys.path


def test_files_and_siblings_of_the_same_name_do_not_collide() -> None:
    before = set(sys.modules), list(sys.path)
    for side in ("left", "right", "left"):
        wanted = target("side", f"{side}/ops.py")
        found = load(wanted)
        with importable(wanted):
            assert found(None) == (side, f"late {side}")
    assert {"helpers", "late", "ops"}.isdisjoint(set(sys.modules) - before[0])
    assert sys.path == before[1]


REGISTERS = """import torch

torch.library.define("{name}::shifted", "(Tensor x) -> Tensor")


def shifted(x):
    return x
"""


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_one_file_is_imported_once_whichever_name_it_has(
    order: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "shifts_" + "".join(map(str, order))
    (tmp_path / f"{name}.py").write_text(REGISTERS.format(name=name))  # raises when it is imported a second time
    (tmp_path / "uses.py").write_text(f"from {name} import shifted\n")
    monkeypatch.chdir(tmp_path)
    wanted = (
        Target(module=name, name="shifted", written=f"{name}:shifted"),
        Target(file=str(tmp_path / f"{name}.py"), name="shifted", written=f"{name}.py:shifted"),
        Target(file=str(tmp_path / "uses.py"), name="shifted", written="uses.py:shifted"),
    )
    assert len({load(wanted[place]) for place in order}) == 1


def test_a_module_of_the_current_directory_does_not_hide_that_of_another_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(OPS / "left")
    assert load(Target(module="helpers", name="SIDE", written="helpers:SIDE")) == "left"
    other = target("side", "right/ops.py")
    with importable(other):
        assert load(other)(None) == ("right", "late right")


def test_what_an_inner_block_imports_stays_for_the_outer_one(tmp_path: Path) -> None:
    (tmp_path / "outer_ops.py").write_text("def late():\n    import inner_data\n\n    return inner_data\n")
    (tmp_path / "inner_data.py").write_text("")
    (tmp_path / "inner_factory.py").write_text("import inner_data\n")
    wanted = [
        Target(file=str(tmp_path / f"{file}.py"), name=name, written="")
        for file, name in (("outer_ops", "late"), ("inner_factory", "inner_data"))
    ]
    with importable(wanted[0]):
        late, data = load(wanted[0]), load(wanted[1])
        assert late() is data


def test_missing_file_lists_the_files_in_its_folder() -> None:
    problem = problem_of(target("Square", "god.py"))
    assert problem.absence is Absence.MISSING
    assert problem.message.endswith("tests/run/ops/god.py")
    assert problem.names[0] == "good.py"


def test_missing_name_lists_existing_names_nearest_first() -> None:
    problem = problem_of(target("Sqare"))
    assert problem.absence is Absence.MISSING
    assert problem.message.endswith("good.py has no `Sqare`")
    assert problem.names[0] == "Square"
    assert {"NewStyle", "square"} <= set(problem.names)
    assert "torch" not in problem.names


def test_missing_nested_name() -> None:
    assert problem_of(target("Nested.other")).message == "Nested has no `other`"


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.sub"])
def test_missing_module_names_the_places_searched(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem = problem_of(Target(module=module, name="f", written=f"{module}:f"))
    assert problem.absence is Absence.MISSING
    assert problem.message == (
        f"there is no module `no_such_package`: it is not installed in this environment, and not in the working"
        f" directory {tmp_path}; install its package (`pip install -e FOLDER`), start gradverify in the folder that"
        " holds it, or name its file, as `path/to/ops.py:Name`"
    )


@pytest.mark.parametrize("module", ["json.no_such_part", "json.no_such_part.sub", "math.no_such_part"])
def test_missing_submodule_of_an_existing_package(module: str) -> None:
    package = module.partition(".")[0]
    problem = problem_of(Target(module=module, name="f", written=f"{module}:f"))
    assert problem.absence is Absence.MISSING
    assert problem.message == (
        f"there is no module `{package}.no_such_part`: `{package}` can be imported, but holds no module `no_such_part`"
    )


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("raises.py", "raised ZeroDivisionError: division by zero (tests/run/ops/raises.py:4)"),
        ("exits.py", "raised SystemExit by sys.exit(5) (tests/run/ops/exits.py:3)"),
    ],
)
def test_a_module_that_raises_is_not_a_missing_one(file: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(OPS.parent.parent.parent)
    problem = problem_of(target("square", file))
    assert (problem.absence, problem.code) == (Absence.RAISED, "GV901")
    assert problem.message.startswith(f"importing tests/run/ops/{file} ")
    assert said in problem.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "raised SyntaxError: invalid syntax (user.py:1)"),
        ("\nimport not_installed_xyz\n", "raised ModuleNotFoundError: No module named 'not_installed_xyz' (user.py:2)"),
        ("from . import other\n", "a module with relative imports is named as package.module:Name"),
    ],
)
def test_a_module_that_cannot_be_imported(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user.py").write_text(text)
    problem = problem_of(target("f", tmp_path / "user.py"))
    assert problem.absence is Absence.RAISED
    assert said in problem.message


@pytest.mark.parametrize("text", ["from handmade_xyz.other import y\n", "from .other import y\n", "from . import y\n"])
def test_a_file_that_needs_its_package_is_told_the_name_in_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "handmade_xyz" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").write_text("")
    (inner / "user.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    message = problem_of(target("f", inner / "user.py")).message
    assert message.endswith("; it is a module of the package `handmade_xyz`: name it handmade_xyz.inner.user:f")
    monkeypatch.chdir(inner)
    again = problem_of(target("f", inner / "user.py")).message
    assert again.endswith(f"user:f, in the folder {tmp_path} or with `handmade_xyz` installed")


def test_a_file_of_a_package_that_lacks_another_one_is_told_nothing_about_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "user.py").write_text("import not_installed_xyz\n")
    monkeypatch.chdir(tmp_path)
    assert problem_of(target("f", tmp_path / "user.py")).message.endswith("(user.py:1)")


@pytest.mark.parametrize(
    "broken", ["from .inner.one import not_there", "from .inner import one\nimport not_installed_xyz"]
)
@pytest.mark.parametrize("above", ["", "space_xyz/"])
def test_package_that_cannot_be_imported_fails_for_every_target(
    broken: str, above: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"halfway_{len(broken)}_{len(above)}"
    inner = tmp_path / above / package / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text(f"{broken}\n")
    for file in ("__init__.py", "one.py", "two.py"):
        (inner / file).write_text("def f(x):\n    return x\n")
    monkeypatch.chdir(tmp_path)
    module = f"{above.replace('/', '.')}{package}.inner"
    wanted = [Target(module=f"{module}.{name}", name="f", written=name) for name in ("one", "two", "two")]
    with importable(wanted[0]):
        for each in wanted:  # whatever was imported on the way does not hide it
            assert problem_of(each).absence is Absence.RAISED
