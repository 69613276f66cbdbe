"""The messages between the light process, the process that is connected to Ray, and the slots on the nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from gradverify.run.quick_pickle import pickle_quickly
from gradverify.run.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What has to be the same on every node; "" for a package that is not installed."""

    python: str
    torch: str
    gradverify: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The folder that reaches the nodes."""

    root: str  # absolute, without links
    here: str  # the current folder, relative to the root
    path: tuple[str, ...]  # entries of sys.path below the root, relative to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """First message of the light process: the cluster to connect to."""

    address: str | None  # HOST:PORT, `auto`, or `local` for a new one; None: as Ray finds it
    workers: int | None  # the most slots; None for one per CPU of the cluster
    project: Project
    versions: Versions
    patience: float  # seconds until tasks that no node could run are given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A task with its number, which is never used again."""

    number: int
    task: Task  # its work is packed


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Message of the light process: tasks to run."""

    tasks: tuple[Task, ...]  # their work is packed


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """Message of the light process: drop every unfinished task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """Message to the light process: the nodes are as they must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Message to the light process: the cluster cannot be used."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Message to the light process: events of tasks."""

    frames: tuple[bytes, ...]  # an EngineEvent each, pickled


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Message to the light process, the answer to a Cancellation."""

    frames: tuple[bytes, ...]  # a TaskLost each, pickled, for tasks that were trying other inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotEvent:
    """An event of a task in a slot."""

    number: int  # of the task, given when it was sent
    is_last: bool  # True if no event of the task follows
    frame: bytes  # the EngineEvent, pickled


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotNews:
    """What happened in a slot since it was last asked."""

    events: tuple[SlotEvent, ...]
    seconds: tuple[float, ...]  # that each task took which finished


def why_refused(own: Versions, nodes: Iterable[tuple[str, Versions]]) -> str | None:
    """Return why the nodes, with their names, cannot run what this machine would; None if they can.

    The part of a version after `+` may differ: it names a build, for a GPU or for none.
    """
    reasons = [reason for name, found in nodes if (reason := _why_not(name, own, found))]
    if not reasons:
        return None
    more = f"; so it is with {len(reasons) - 1:,} more of the nodes" if len(reasons) > 1 else ""
    return f"{reasons[0]}; its numbers could differ: install the same versions on every node{more}"


def _why_not(name: str, own: Versions, found: Versions) -> str | None:
    for package in ("gradverify", "torch"):
        here, there = getattr(own, package), getattr(found, package)
        if here.partition("+")[0] != there.partition("+")[0]:
            what = f"{package} {there}" if there else f"no {package}"
            return f"--engine ray: node {name} has {what}, this machine has {here}"
    return None


pickle_quickly(sys.modules[__name__])
