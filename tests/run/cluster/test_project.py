"""The files that reach the nodes, the paths there, and the versions that nodes must have."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gradverify.case import Case, DataFile, Exploring, Factory, Literal, TensorInput
from gradverify.result import CaseResult
from gradverify.run.engines.cluster.messages import Versions, why_refused
from gradverify.run.engines.cluster.probe import installed_versions
from gradverify.run.engines.cluster.project import largest_parts, own_project
from gradverify.run.framing import packed
from gradverify.run.moved_paths import packed_answer, received_work
from gradverify.run.outcome import could_not_run
from gradverify.run.siblings import private_name
from gradverify.run.task import PackedWork
from tests.run.making import case, target

HERE, THERE = "/home/me/project", "/tmp/ray/pkg"


def test_the_project_is_the_nearest_folder_with_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "src").mkdir()
    (tmp_path / "tools" / "specs").mkdir(parents=True)
    (tmp_path / ".env" / "lib").mkdir(parents=True)
    (tmp_path / ".env" / "pyvenv.cfg").write_text("")
    monkeypatch.chdir(tmp_path / "tools")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "src"), str(tmp_path / ".env" / "lib"), "/elsewhere"])
    project = own_project()
    assert (project.root, project.here, project.path) == (str(tmp_path), "tools", ("tools", "src"))


def test_the_largest_parts_of_a_project_that_are_sent(tmp_path: Path) -> None:
    for name, size in (("data/a.bin", 3), ("data/b.bin", 2), (".venv/lib.so", 9), ("build/x.o", 9), ("model.pt", 4)):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(size << 20))
    assert largest_parts(str(tmp_path)) == "data/ 5 MiB, model.pt 4 MiB"


def test_paths_of_a_task_are_those_of_the_node() -> None:
    inputs = {
        "x": TensorInput(origin=DataFile(path="/home/me/project/data/x.npy")),
        "y": TensorInput(origin=Factory(target=target("make", "/home/me/project/make.py"))),
        "z": TensorInput(origin=DataFile(path="/shared/z.npy")),
        "name": Literal(value="/home/me/project/untouched"),
    }
    exploring = Exploring(folder="/home/me/project/found")
    moved = received_work(sent(case("f", "/home/me/project/ops.py", inputs=inputs, exploring=exploring)))
    wanted = {
        "x": TensorInput(origin=DataFile(path="/tmp/ray/pkg/data/x.npy")),
        "y": TensorInput(
            origin=Factory(target=replace(target("make", "/home/me/project/make.py"), file="/tmp/ray/pkg/make.py"))
        ),
        "z": inputs["z"],
        "name": inputs["name"],
    }
    there = replace(target("f", "/home/me/project/ops.py"), file="/tmp/ray/pkg/ops.py")
    assert moved == case("f", target=there, inputs=wanted, exploring=Exploring(folder="/tmp/ray/pkg/found"))


def test_messages_have_the_paths_of_this_machine() -> None:
    work = case("f", "/home/me/project/ops.py")
    here, there = (private_name(Path(folder) / "ops.py") for folder in ("/home/me/project", "/tmp/ray/pkg"))
    result = could_not_run(work, "GV902", f"in /tmp/ray/pkg/ops.py:3: <class '{there}.Odd'>")
    assert answered(result, work).message == f"GV902: in /home/me/project/ops.py:3: <class '{here}.Odd'>"
    untouched = could_not_run(work, "GV902", "elsewhere")
    assert answered(untouched, work) == untouched


def sent(work: Case) -> PackedWork:
    return PackedWork(frame=packed(work), here=HERE, there=THERE)


def answered(result: CaseResult, work: Case) -> CaseResult:
    answer = pickle.loads(packed_answer(result, sent(work), received_work(sent(work))))
    assert isinstance(answer, CaseResult)
    return answer


OWN = Versions(python="3.12.1", torch="2.13.0+cpu", gradverify="0.1.0")


def test_nodes_with_the_same_versions_are_accepted() -> None:
    build = replace(OWN, torch="2.13.0+cu130")
    assert why_refused(OWN, [("a", OWN), ("b", build)]) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (replace(OWN, torch="2.12.0"), "has torch 2.12.0, this machine has 2.13.0+cpu"),
        (replace(OWN, torch=""), "has no torch, this machine has 2.13.0+cpu"),
        (replace(OWN, gradverify="0.2.0"), "has gradverify 0.2.0, this machine has 0.1.0"),
    ],
)
def test_a_node_with_another_version_is_refused(found: Versions, said: str) -> None:
    end = "; its numbers could differ: install the same versions on every node"
    assert why_refused(OWN, [("a", OWN), ("b", found)]) == f"--engine ray: node b {said}{end}"
    assert why_refused(OWN, [("b", found), ("c", found)]) == (
        f"--engine ray: node b {said}{end}; so it is with 1 more of the nodes"
    )


def test_the_probe_tells_what_is_installed() -> None:
    found = installed_versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert all(found.values())
