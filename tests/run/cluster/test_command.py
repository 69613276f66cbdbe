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

from gradverify.run.engines.cluster.engine import RayEngine
from gradverify.run.engines.open import open_engine
from gradverify.run.options import EngineName, EngineOptions
from gradverify.run.pool import LocalPool
from gradverify.run.start_server import ServerError
from tests.lent import Commands, Ran, lend
from tests.run.cluster.conftest import Nodes
from tests.run.making import OPS

SPEC = """
function: ../ops/clustered.py:{name}
inputs: {{x: {{shape: [3]}}, seconds: {seconds}}}
checks: [gradcheck]
samples: {samples}
"""


SMALL = {"RAY_max_grpc_message_size": str(2 << 20)}  # the limit on what is sent, in bytes


def write_spec(project: Path, file: str, name: str, *, seconds: float = 0.1, samples: int = 1) -> None:
    (project / "specs").mkdir(exist_ok=True)
    (project / "specs" / f"{file}.yaml").write_text(SPEC.format(name=name, seconds=seconds, samples=samples))


@pytest.fixture
def new_project(tmp_path: Path) -> Path:
    """A project with a spec of four right cases, and a large file that .gitignore names."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "ops").mkdir()
    shutil.copy(OPS / "clustered.py", tmp_path / "ops")
    write_spec(tmp_path, "right", "slow", samples=4)
    (tmp_path / "weights.pt").write_bytes(os.urandom(4 << 20))
    (tmp_path / ".gitignore").write_text("/weights.pt\n")
    return tmp_path


def started(project: Path, words: Sequence[str], **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gradverify", "run", *words],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )


def without_progress(errors: str) -> str:
    return re.sub(r"gradverify: .*/.* done, .*\n", "", errors)


@pytest.fixture
def command(shared: RayEngine, pool: LocalPool, project: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Runs commands in the shared project, in this process and in engines that are open."""
    lend(monkeypatch, {EngineName.RAY: shared, EngineName.LOCAL: pool}, renews=False)
    return Commands(project, monkeypatch)


def said(ran: Ran) -> tuple[int, str]:
    """Return the exit code of a command, and what it printed to stderr beside its progress."""
    return ran.returncode, without_progress(ran.stderr)


def timeless(file: str) -> str:
    text = re.sub(r'"seconds": [0-9.e-]+', '"seconds": 0', Path(file).read_text())
    return text.replace('"engine": "ray"', '"engine": "local"')


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_the_report_is_that_of_this_machine_also_in_parts(command: Commands, project: Path) -> None:
    write_spec(project, "right", "slow", samples=4)
    write_spec(project, "wrong", "wrong")
    specs = ("run", "specs/right.yaml", "specs/wrong.yaml")
    assert said(command(*specs, "--json", "here.json")) == (1, "")
    assert said(command(*specs, "--engine", "ray", "--json", "there.json")) == (1, "")
    assert '"engine": "ray"' in Path("there.json").read_text()
    assert timeless("there.json") == timeless("here.json")
    assert command(*specs, "--engine", "ray", "--shard", "1/2", "--json", "one.json").returncode in (0, 1)
    assert command(*specs, "--shard", "2/2", "--json", "two.json").returncode in (0, 1)
    assert command("merge", "one.json", "two.json", "--json", "whole.json").returncode == 1
    whole = json.loads(Path("whole.json").read_text())
    assert whole["engine"] == "local, ray"
    assert len(whole["cases"]) == 5


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_what_is_found_at_other_inputs_is_saved_with_the_paths_of_this_machine(
    command: Commands, project: Path
) -> None:
    (project / "specs").mkdir(exist_ok=True)
    (project / "specs" / "elsewhere.yaml").write_text(
        "function: ../ops/clustered.py:wrong_elsewhere\ninputs: {x: {shape: [3]}}\nchecks: [gradcheck]\n"
    )
    words = ("run", "specs/elsewhere.yaml", "--explore=60", "--save", "found")
    assert command(*words).returncode == 1
    here = saved()
    assert command(*words, "--engine", "ray").returncode == 1
    assert saved() == here
    assert "function: ../ops/clustered.py:wrong_elsewhere" in "".join(here.values())


def saved() -> dict[str, str]:
    """Return the texts of the specs that were saved, and remove them."""
    texts = {file.name: file.read_text() for file in Path("found").iterdir()}
    shutil.rmtree("found")
    return texts


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_an_interrupt_ends_the_cases_on_every_node_and_keeps_what_had_finished(free: Nodes, new_project: Path) -> None:
    project = new_project
    write_spec(project, "zz", "slow", seconds=300.0, samples=6)
    words = ("--engine", "ray", "--ray-address", free.address, "--json", "found.json", "-k", "right or zz")
    process = started(project, words, **SMALL)
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
def test_a_project_that_is_too_large_is_refused_with_what_is_large(free: Nodes, new_project: Path) -> None:
    project = new_project
    (project / "weights").mkdir()
    (project / "weights" / "model.pt").write_bytes(os.urandom(4 << 20))
    (project / ".venv").mkdir()
    (project / ".venv" / "lib.so").write_bytes(os.urandom(4 << 20))
    process = started(project, ("--engine", "ray", "--ray-address", free.address), **SMALL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
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


@pytest.mark.slow
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
