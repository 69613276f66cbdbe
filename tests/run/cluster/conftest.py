"""A Ray cluster of several nodes on this machine, and an engine connected to it, shared by all tests of the cluster.

Connecting takes seconds, since torch loads in every slot, and so does starting a node. The order of the tests avoids
both: first those that need the nodes for themselves (`free`), then those that use the engine that stays connected
(`shared`), and last those that kill nodes (`doomed`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.simulated_nodes import SimulatedNodes
from gradverify.run.engines.cluster.engine import RayEngine
from gradverify.run.pool import LocalPool
from tests.run.making import OPS
from tests.run.processes import alive, left_over, offspring

_ORDER = ("free", "shared", "doomed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = [place for place, item in enumerate(items) if item.path.parent == Path(__file__).parent]
    ordered = sorted((items[place] for place in places), key=_rank)  # stable
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _rank(item: pytest.Item) -> int:
    names = getattr(item, "fixturenames", ())
    return next((rank for rank, name in enumerate(_ORDER) if name in names), len(_ORDER))


class Nodes(SimulatedNodes):
    """The nodes of the cluster, and the processes of gradverify that run there."""

    def left_of_ours(self, patience: float = 10.0) -> list[str]:
        """Return the commands of slots and servers that are still alive on the nodes after so many seconds."""
        deadline = time.monotonic() + patience
        while (found := self._ours()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def servers(self) -> list[str]:
        """Return the commands of the processes on the nodes that fork workers."""
        return [command for command in self._ours() if "gradverify.run.server" in command]

    def _ours(self) -> list[str]:
        raylets = [node.all_processes["raylet"][0].process.pid for node in self.there.values()]
        commands = [command_of(process) for raylet in raylets if alive(raylet) for process in offspring(raylet)]
        return [command for command in commands if "gradverify.run.server" in command or "ray::Slot" in command]


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'gradverify[ray]'")
    made = Nodes()
    started = offspring(os.getpid())
    yield made
    made.close()
    assert not left_over(process for process in started if "ray" in command_of(process))


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the operations of these tests in the folder `ops`, which the engine sends to the nodes."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").write_text("")
    shutil.copytree(OPS, folder / "ops")
    return folder


@pytest.fixture(scope="session")
def ray_engine(nodes: Nodes) -> Iterator[RayEngine]:
    """An engine that stays connected while nodes come and die. At the end, nothing of it is left on the nodes."""
    made = RayEngine(workers=None, address=nodes.address, patience=2.0)
    yield made
    made.close()
    assert not nodes.left_of_ours()


@pytest.fixture
def free(ray_engine: RayEngine, nodes: Nodes) -> Nodes:
    """Two nodes with one CPU each, `alpha` and `beta`, on which nothing of the shared engine runs."""
    ray_engine.close()
    nodes.ensure("alpha", "beta")
    return nodes


@pytest.fixture
def shared(ray_engine: RayEngine, nodes: Nodes, project: Path, monkeypatch: pytest.MonkeyPatch) -> RayEngine:
    """The engine that stays connected, with `alpha` and `beta`. The current folder is its project."""
    monkeypatch.chdir(project)
    nodes.ensure("alpha", "beta")
    return ray_engine


@pytest.fixture
def doomed(ray_engine: RayEngine, nodes: Nodes, project: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Nodes that the test may kill. The current folder is the project of the shared engine."""
    monkeypatch.chdir(project)
    return nodes


@pytest.fixture(scope="session")
def pool(project: Path) -> Iterator[LocalPool]:
    """A pool of this machine that works in the same project."""
    before = Path.cwd()
    os.chdir(project)
    try:
        made = LocalPool(2)
        made.start()
    finally:
        os.chdir(before)
    yield made
    made.close()
