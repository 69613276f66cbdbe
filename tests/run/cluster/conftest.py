"""A Ray cluster of several nodes on this machine, shared by all tests of the cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradverify.run.engines.cluster.engine import RayEngine
from tests.run.processes import alive, left_over, offspring


class Nodes:
    """The nodes of a cluster: a head, on which no case runs, and nodes with a CPU each that tests may kill."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.address: str = cluster.address
        self.there: dict[str, Any] = {}  # by name
        self.folders: list[str] = []  # of nodes, also of dead ones

    def add(self, name: str, **settings: Any) -> None:
        # Each node unpacks the project below a folder of its own, as nodes of different machines do.
        folder = tempfile.mkdtemp(prefix="gv", dir="/tmp")  # short: names of sockets have a limit
        self.folders.append(folder)
        self.there[name] = self.cluster.add_node(node_name=name, temp_dir=folder, **({"num_cpus": 1} | settings))

    def kill(self, name: str) -> None:
        """Kill a node as a power failure would."""
        self.cluster.remove_node(self.there.pop(name), allow_graceful=False)

    def ensure(self, *names: str) -> None:
        """Let the cluster have these nodes and no others."""
        for name, node in list(self.there.items()):
            if name not in names or not is_alive(node):
                self.kill(name)
        for name in names:
            if name not in self.there:
                self.add(name)

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


def is_alive(node: Any) -> bool:
    return not any(kind == "raylet" for kind, _ in node.dead_processes())


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"})
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: pip install 'gradverify[ray]'")
    quick = {"health_check_period_ms": 500}  # a dead node is noticed after five of them
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": quick}
    made = utils.Cluster(initialize_head=True, head_node_args=head)
    started = offspring(os.getpid())
    yield made
    made.remove_node(made.head_node, allow_graceful=False)  # else it waits for nodes that were killed
    made.shutdown()
    assert not left_over(process for process in started if "ray" in command_of(process))


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture(scope="session")
def all_nodes(cluster: Any) -> Iterator[Nodes]:
    nodes = Nodes(cluster)
    yield nodes
    nodes.ensure()
    for folder in nodes.folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nodes(all_nodes: Nodes) -> Nodes:
    """Two nodes, `alpha` and `beta`, with one CPU each."""
    all_nodes.ensure("alpha", "beta")
    return all_nodes


@pytest.fixture(scope="session")
def ray_engine(all_nodes: Nodes) -> Iterator[RayEngine]:
    """An engine that stays connected while nodes come and die. At the end, nothing of it is left on the nodes."""
    all_nodes.ensure("alpha", "beta")
    made = RayEngine(workers=None, address=all_nodes.address, patience=2.0)
    yield made
    made.close()
    assert not all_nodes.left_of_ours()


@pytest.fixture
def shared(ray_engine: RayEngine, nodes: Nodes) -> RayEngine:
    """The engine that stays connected, with two nodes."""
    return ray_engine


@pytest.fixture
def free(ray_engine: RayEngine, nodes: Nodes) -> Nodes:
    """Two nodes on which nothing of the engine that stays connected runs: it connects again when it is used."""
    ray_engine.close()
    return nodes
