"""`gradverify run --engine ray`: the report, an interrupt, a project that is too large, and mistaken options."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gradverify.result import Verdict
from gradverify.run.engines.cluster.engine import RayEngine
from gradverify.run.engines.open import open_engine
from gradverify.run.launch import ServerError
from gradverify.run.options import EngineName, EngineOptions
from tests.run.cluster.conftest import Nodes
from tests.run.making import case, run

OPS = """
import time

def slow(x, seconds=0.1):
    time.sleep(seconds / 10)
    return x.sin()

def wrong(x, seconds=0.1):
    return x.detach() * x
"""
SPEC = """
function: ../ops.py:{name}
inputs: {{x: {{shape: [3]}}, seconds: {seconds}}}
checks: [gradcheck]
samples: {samples}
"""


SMALL = {"RAY_max_grpc_message_size": str(2 << 20)}  # the limit on what is sent, in bytes


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of its own, with a spec of four right cases and one of a wrong one."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "ops.py").write_text(OPS)
    write_spec(tmp_path, "right", "slow", samples=4)
    write_spec(tmp_path, "wrong", "wrong")
    return tmp_path


def write_spec(project: Path, file: str, name: str, *, seconds: float = 0.1, samples: int = 1) -> None:
    (project / "specs").mkdir(exist_ok=True)
    (project / "specs" / f"{file}.yaml").write_text(SPEC.format(name=name, seconds=seconds, samples=samples))


def started(project: Path, words: Sequence[str], **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gradverify", "run", *words],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )


def said(project: Path, *words: str, **variables: str) -> tuple[int, str]:
    """Return the exit code of a command and what it printed to stderr beside its progress."""
    process = started(project, words, **variables)
    _, errors = process.communicate(timeout=120)
    return process.returncode, without_progress(errors)


def without_progress(errors: str) -> str:
    return re.sub(r"gradverify: .*/.* done, .*\n", "", errors)


def timeless(file: Path) -> str:
    return re.sub(r'"seconds": [0-9.e-]+', '"seconds": 0', file.read_text()).replace(
        '"engine": "ray"', '"engine": "local"'
    )


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_the_report_is_that_of_this_machine_also_in_parts(free: Nodes, project: Path) -> None:
    on_ray = ("--engine", "ray", "--ray-address", free.address)
    assert said(project, "-j", "2", "--json", "here.json") == (1, "")
    (project / "weights.pt").write_bytes(os.urandom(4 << 20))
    (project / ".gitignore").write_text("*.pt\n")  # what it names is not sent
    assert said(project, *on_ray, "--json", "there.json", **SMALL) == (1, "")
    assert '"engine": "ray"' in (project / "there.json").read_text()
    assert timeless(project / "there.json") == timeless(project / "here.json")
    assert said(project, *on_ray, "--shard", "1/2", "--json", "one.json")[0] in (0, 1)
    assert said(project, "-j", "2", "--shard", "2/2", "--json", "two.json")[0] in (0, 1)
    merge = [sys.executable, "-m", "gradverify", "merge", "one.json", "two.json", "--json", "whole.json"]
    assert subprocess.run(merge, cwd=project, stdout=subprocess.DEVNULL).returncode == 1
    whole = json.loads((project / "whole.json").read_text())
    assert whole["engine"] == "local, ray"
    assert len(whole["cases"]) == 5
    assert not free.left_of_ours()


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_an_interrupt_ends_the_cases_on_every_node_and_keeps_what_had_finished(free: Nodes, project: Path) -> None:
    write_spec(project, "zz", "slow", seconds=300.0, samples=6)
    words = ("--engine", "ray", "--ray-address", free.address, "--json", "found.json", "-k", "right or zz")
    process = started(project, words)
    assert process.stdout is not None
    for _ in range(4):
        process.stdout.readline()
    deadline = time.monotonic() + 20
    while len(free.servers()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert without_progress(errors) == "gradverify: interrupted: 4 of 10 cases had finished\n"
    found = json.loads((project / "found.json").read_text())
    assert [case["verdict"] for case in found["cases"]] == ["pass"] * 4
    assert len(found["not_run"]) == 6
    assert not free.left_of_ours()


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_a_project_that_is_too_large_is_refused_with_what_is_large(free: Nodes, project: Path) -> None:
    (project / "weights").mkdir()
    (project / "weights" / "model.pt").write_bytes(os.urandom(4 << 20))
    (project / ".venv").mkdir()
    (project / ".venv" / "lib.so").write_bytes(os.urandom(4 << 20))
    code, errors = said(project, "--engine", "ray", "--ray-address", free.address, **SMALL)
    assert code == 2
    assert errors.startswith(
        f"gradverify: --engine ray: the project's folder {project} is too large to send to the nodes, "
    )
    assert " of at most 2.00MiB when packed; the largest are weights/ 4 MiB, " in errors


def test_without_ray_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match=r"--engine ray needs Ray, .*: pip install 'gradverify\[ray\]'"):
        open_engine(EngineOptions(name=EngineName.RAY))


def test_options_that_exclude_each_other() -> None:
    with pytest.raises(ServerError, match=r"-j 0 runs cases in this process, and --engine ray on a cluster"):
        open_engine(EngineOptions(name=EngineName.RAY, workers=0))
    with pytest.raises(ServerError, match=r"--ray-address names a Ray cluster; give --engine ray too"):
        open_engine(EngineOptions(address="auto"))


@pytest.mark.parametrize("address", ["10.0.0.1", "ray://10.0.0.1:10001", ":6379", "host:port"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    from gradverify.run.engines.cluster.connection import ClusterError, refuse_no_answer

    with pytest.raises(ClusterError, match=r"expected HOST:PORT, as 10\.0\.0\.1:6379, or auto$"):
        refuse_no_answer(address)


def test_an_engine_that_ran_nothing_starts_nothing() -> None:
    engine = RayEngine(workers=None, address=None)
    assert engine.next_event() is None
    assert engine.cancel() == ()
    engine.close()


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_changed_files_reach_the_nodes_when_the_engine_is_renewed(
    free: Nodes, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    engine = RayEngine(workers=1, address=free.address)
    wrong = case("wrong", project / "ops.py")
    try:
        assert run([wrong], engine)["wrong"].verdict is Verdict.FAIL
        (project / "ops.py").write_text(OPS.replace("x.detach() * x", "x * x"))
        assert run([wrong], engine)["wrong"].verdict is Verdict.FAIL
        engine.renew()
        assert run([wrong], engine)["wrong"].verdict is Verdict.PASS
    finally:
        engine.close()


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_what_is_found_at_other_inputs_is_saved_with_the_paths_of_this_machine(free: Nodes, project: Path) -> None:
    (project / "ops.py").write_text("def f(x):\n    return x.where(x.detach() < 6, (2 * x).detach() + x)\n")
    (project / "specs" / "wrong.yaml").unlink()
    (project / "specs" / "right.yaml").write_text(
        "function: ../ops.py:f\ninputs: {x: {shape: [3]}}\nchecks: [gradcheck]\n"
    )
    words = ["--explore=60", "--save", "found"]
    assert said(project, *words)[0] == 1
    here = saved(project)
    assert said(project, *words, "--engine", "ray", "--ray-address", free.address)[0] == 1
    assert saved(project) == here
    assert "function: ../ops.py:f" in "".join(here.values())


def saved(project: Path) -> dict[str, str]:
    """Return the texts of the specs that were saved, and remove them."""
    texts = {file.name: file.read_text() for file in (project / "found").iterdir()}
    shutil.rmtree(project / "found")
    return texts
