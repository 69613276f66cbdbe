"""What the nodes of a cluster can run."""

from __future__ import annotations

import time

from gradverify.run.engines.cluster.connection import Node, alive_nodes

_FRESH_SECONDS = 2.0  # for which an answer about the nodes is taken for true


class Capacity:
    """The nodes that are alive, and what they have room for."""

    def __init__(self, workers: int | None) -> None:
        self._workers = workers  # the most slots; None for one per CPU
        self._names: dict[str, str] = {}  # of nodes, by id
        self._nodes: tuple[Node, ...] = ()
        self._looked: float | None = None  # time at which the nodes were last asked for

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are alive, or were two seconds ago."""
        if self._looked is None or time.monotonic() - self._looked > _FRESH_SECONDS:
            self.look()
        return self._nodes

    def node(self, identity: str) -> Node | None:
        """Return the node with an id, None if it is not alive."""
        self.look()
        return next((node for node in self._nodes if node.id == identity), None)

    def gpus_for(self, device: str) -> int:
        """Return how many GPUs a slot needs to have a device; 0 if no node has so many, which is a skip there."""
        kind, _, index = device.partition(":")
        if kind == "cpu":
            return 0
        wanted = int(index or 0) + 1
        return wanted if any(node.gpus >= wanted for node in self.nodes()) else 0

    def limit(self, gpus: int) -> int:
        """Return the most slots with so many GPUs."""
        there = sum(node.gpus // gpus if gpus else node.cpus for node in self.nodes())
        if gpus:
            return there if self._workers is None else min(there, self._workers)
        return self._workers if self._workers is not None else max(there, 1)

    def has_room(self, gpus: int) -> bool:
        """True if a node is alive that could run a slot with so many GPUs, busy or not."""
        return any(node.gpus >= gpus if gpus else node.cpus for node in self.nodes())

    def look(self) -> None:
        """Ask which nodes are alive."""
        self._nodes, self._looked = alive_nodes(self._names), time.monotonic()
