"""Connect to a Ray cluster, and ask its nodes what they have."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gradverify.errors import GradverifyError
from gradverify.run.engines.cluster import messages, probe
from gradverify.run.engines.cluster.messages import Opening, Versions
from gradverify.run.engines.cluster.project import EXCLUDES, largest_parts

_ANSWER_TIMEOUT = 5.0  # seconds until a cluster has answered
_PROBE_TIMEOUT = 120.0  # seconds until every node has received the project and answered
_SIZES = re.compile(r"Package size \((?P<size>[^)]*)\) exceeds the maximum size of (?P<limit>[0-9.]+ ?\w+)")
_RUNNING = "auto"  # the address of the cluster that this machine is a node of
_NEW = "local"  # the address that starts Ray on this machine, for this run


class ClusterError(GradverifyError):
    """The cluster cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that is alive."""

    id: str
    name: str  # unique
    cpus: int
    gpus: int


def connect(opening: Opening) -> None:
    """Connect this process to the cluster, to which the project's folder is sent. Raises ClusterError."""
    address = opening.address or os.environ.get("RAY_ADDRESS")
    if address is not None and address not in (_RUNNING, _NEW):
        refuse_no_answer(address)
    try:
        try:
            _init(address or _RUNNING, opening)
        except ConnectionError:
            if address is not None:
                raise
            _init(_NEW, opening)
    except Exception as error:
        raise ClusterError(_why_not_connected(address or _NEW, opening.project.root, error)) from error


def _init(address: str, opening: Opening) -> None:
    ray.init(
        address=address,
        include_dashboard=False if address == _NEW else None,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"working_dir": opening.project.root, "excludes": list(EXCLUDES)},
    )


def refuse_no_answer(address: str) -> None:
    """Raise ClusterError if nothing listens at an address: Ray would try for minutes."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or "/" in host:
        raise ClusterError(f"--ray-address {address}: expected HOST:PORT, as 10.0.0.1:6379, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"{_no_cluster(address)} ({getattr(error, 'strerror', None) or error})") from error


def refuse_other_versions(opening: Opening, nodes: Sequence[Node]) -> None:
    """Raise ClusterError if a node has other versions than this machine, or does not answer."""
    ray.cloudpickle.register_pickle_by_value(probe)  # the node may have no gradverify, or another one
    ask = ray.remote(num_cpus=0, max_retries=0)(probe.installed_versions)
    asked = {
        node: ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote()
        for node in nodes
    }
    _, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=_PROBE_TIMEOUT)
    found: list[tuple[str, Versions]] = []
    for node, answer in asked.items():
        if answer in late:
            raise ClusterError(f"--engine ray: node {node.name} has not answered for {_PROBE_TIMEOUT:g} s")
        try:
            found.append((node.name, Versions(**ray.get(answer))))
        except RayError as error:
            if node.id in {each.id for each in alive_nodes({})}:  # else it has died meanwhile
                raise ClusterError(f"--engine ray: node {node.name} cannot be used: {last_line(error)}") from error
    reason = messages.why_refused(opening.versions, found)
    if reason is not None:
        raise ClusterError(reason)


def alive_nodes(names: dict[str, str]) -> tuple[Node, ...]:
    """Return the nodes that are alive.

    `names` has their names by their ids. New nodes are added to it, each with a name of its own, and dead ones removed.
    """
    alive = {str(record["NodeID"]): record for record in ray.nodes() if record["Alive"]}
    for identity in names.keys() - alive.keys():
        del names[identity]
    for identity in sorted(alive.keys() - names.keys()):
        names[identity] = _unique(_name_of(alive[identity]), names)
    return tuple(_node(identity, name, alive[identity]["Resources"]) for identity, name in names.items())


def _node(identity: str, name: str, resources: Mapping[str, float]) -> Node:
    return Node(id=identity, name=name, cpus=int(resources.get("CPU", 0)), gpus=int(resources.get("GPU", 0)))


def last_line(error: BaseException) -> str:
    """Return the last line of an exception's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _unique(name: str, names: Mapping[str, str]) -> str:
    taken = set(names.values())
    numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(each for each in numbered if each not in taken)


def _name_of(record: Mapping[str, Any]) -> str:
    """Return the name that a node was given, else its host's."""
    name, address = str(record["NodeName"]), str(record["NodeManagerAddress"])
    return name if name and name != address else str(record["NodeManagerHostname"] or address)


def _no_cluster(address: str) -> str:
    return (
        f"--ray-address {address}: no Ray cluster answers there; start one with `ray start --head`, and the other nodes"
        " with the `ray start --address=…` that it prints"
    )


def _why_not_connected(address: str, root: str, error: Exception) -> str:
    text = str(error)
    sizes = _SIZES.search(text)
    if sizes:
        return (
            f"--engine ray: the project's folder {root} is too large to send to the nodes, {sizes['size']} of at most"
            f" {sizes['limit']} when packed; the largest are {largest_parts(root)}; name in .gitignore or .rayignore"
            " what no case needs"
        )
    if isinstance(error, ConnectionError):
        return _no_cluster(address)
    return f"--engine ray: Ray did not connect: {' '.join(text.split())}"
