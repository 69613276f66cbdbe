"""A Ray cluster of several nodes on this machine, for the benchmark of clusters and for their tests."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from typing import Any

# Ray sends nothing anywhere, and its workers get as much of a CPU as those of the local pool.
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
_QUICK = {"health_check_period_ms": 500}  # a dead node is noticed after five of them


class SimulatedNodes:
    """A head, on which no case runs, and nodes with names, which can be killed. Needs Ray."""

    def __init__(self) -> None:
        os.environ.update(ENVIRONMENT)
        from ray.cluster_utils import Cluster

        logging.getLogger("ray").setLevel(logging.ERROR)  # else it warns of settings that are its own
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": _QUICK}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self.there: dict[str, Any] = {}  # nodes that were started and not killed here, by name
        self._folders: list[str] = []  # of all nodes, dead ones too

    def add(self, name: str, **settings: Any) -> None:
        """Start a node, by default with one CPU. `settings` are those of Ray's Cluster.add_node.

        It unpacks the project below a folder of its own, as nodes of different machines do.
        """
        folder = tempfile.mkdtemp(prefix="gv", dir="/tmp")  # short: names of sockets have a limit
        self._folders.append(folder)
        self.there[name] = self._cluster.add_node(node_name=name, temp_dir=folder, **({"num_cpus": 1} | settings))

    def alive(self) -> tuple[str, ...]:
        """Return the names of the nodes that have not died."""
        return tuple(name for name, node in self.there.items() if _is_alive(node))

    def kill(self, name: str) -> None:
        """Kill a node as a power failure would."""
        self._cluster.remove_node(self.there.pop(name), allow_graceful=False)

    def ensure(self, *names: str) -> None:
        """Let the cluster have these nodes and no others. Those that are started have one CPU."""
        wanted = set(names) & set(self.alive())
        for name in self.there.keys() - wanted:
            self.kill(name)
        for name in names:
            if name not in self.there:
                self.add(name)

    def close(self) -> None:
        """Kill every node, and remove their folders."""
        self.ensure()
        self._cluster.remove_node(self._cluster.head_node, allow_graceful=False)  # else it waits for killed nodes
        self._cluster.shutdown()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(node: Any) -> bool:
    return not any(kind == "raylet" for kind, _ in node.dead_processes())
