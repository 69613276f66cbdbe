"""Decide which tasks a slot gets, and what becomes of the tasks of a slot that dies. Knows nothing of Ray.

A slot runs its tasks one after the other, in the order in which it got them. It gets about a second's worth at a time,
so that small tasks do not wait for messages, and one at a time of those that take longer.

When slots die with their node, any task that they held may be to blame. Each is run again alone in its slot, and only
one of them at a time on a node: a task that is there when a second node dies is the culprit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from gradverify.run.engines.cluster.messages import Numbered
from gradverify.run.task import Task

BATCH_SECONDS = 1.0  # of work that a slot holds, at least
_FULL = 0.75  # part of a batch that a slot holds if it gets no more
_MOST_TASKS = 256  # that a slot holds
_FIRST_TASKS = 2  # that a slot gets while no time is known
_RECENT = 0.2  # weight of the last task in the mean time
_DEATHS = 2  # nodes that a task may take down


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A task that took down so many nodes that it is not run again."""

    task: Task
    nodes: tuple[str, ...]  # names of the nodes that died with it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Death:
    """The death of a slot that held a task."""

    node: str
    at: float  # time


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One slot. The fields change."""

    node: str
    gpus: int
    opened: float  # time at which it was added
    held: dict[int, Task] = field(default_factory=dict)  # by number, in the order in which they run
    alone: bool = False  # True if it holds a suspect
    claimed: bool = False  # True if it takes no other tasks until it is empty, to run a suspect then
    since: float = 0.0  # time at which its first task became the first


@dataclass(slots=True, kw_only=True)
class _Queue:
    """The tasks that wait for slots with so many GPUs. The fields change."""

    waiting: deque[Numbered] = field(default_factory=deque)
    suspects: deque[Numbered] = field(default_factory=deque)
    mean: float | None = None  # seconds of the recent tasks; None before the first


class Dispatcher:
    """The tasks that are not finished, and the slots that hold some of them."""

    def __init__(self) -> None:
        self.batch_seconds = BATCH_SECONDS  # of work that a slot holds
        self._count = 0
        self._slots: dict[int, _Slot] = {}
        self._queues: dict[int, _Queue] = {}  # by GPUs
        self._deaths: dict[int, tuple[_Death, ...]] = {}  # by task number: the slots that died with it

    def __bool__(self) -> bool:
        """True if a task is not finished."""
        return any(self.unfinished(gpus) for gpus in self._queues)

    def add(self, task: Task, gpus: int) -> None:
        """Queue a task for slots that have so many GPUs."""
        self._count += 1
        self._queue(gpus).waiting.append(Numbered(number=self._count, task=task))

    def kinds(self) -> tuple[int, ...]:
        """Return the numbers of GPUs that tasks have asked for."""
        return tuple(self._queues)

    def waiting(self, gpus: int) -> int:
        """Return the number of tasks that no slot holds."""
        queue = self._queue(gpus)
        return len(queue.waiting) + len(queue.suspects)

    def unfinished(self, gpus: int) -> int:
        """Return the number of tasks that are not finished."""
        return self.waiting(gpus) + sum(len(slot.held) for slot in self._slots.values() if slot.gpus == gpus)

    def is_idle(self, slot: int) -> bool:
        """True if a slot holds no task."""
        return not self._slots[slot].held

    def knows(self, slot: int) -> bool:
        """True if a slot was added and not removed."""
        return slot in self._slots

    def open(self, slot: int, node: str, gpus: int, now: float) -> None:
        """Add a slot that can run tasks."""
        self._slots[slot] = _Slot(node=node, gpus=gpus, opened=now)

    def close(self, slot: int) -> None:
        """Remove a slot that ended in good order; tasks that it still holds wait again."""
        closed = self._slots.pop(slot)
        self._put_back(closed.gpus, closed.held)

    def bury(self, slot: int, now: float) -> tuple[int, tuple[Culprit, ...]]:
        """Remove a slot that died; return the number of tasks that are to run again, and the tasks to blame."""
        dead = self._slots.pop(slot)
        culprits: list[Culprit] = []
        again = 0
        for number, task in reversed(dead.held.items()):
            deaths = self._deaths[number] = (*self._deaths.get(number, ()), _Death(node=dead.node, at=now))
            if len(deaths) >= _DEATHS:
                culprits.append(Culprit(task=task, nodes=tuple(death.node for death in deaths)))
                del self._deaths[number]
            else:
                again += 1
                self._queue(dead.gpus).suspects.appendleft(Numbered(number=number, task=task))
        return again, tuple(culprits)

    def refill(self, slot: int, now: float) -> tuple[Numbered, ...]:
        """Return the tasks to send to a slot now."""
        filled = self._slots[slot]
        queue = self._queue(filled.gpus)
        if filled.alone:
            return ()
        suspect = None if self._runs_suspect(filled) else self._suspect_for(filled, queue)
        if suspect is not None:
            filled.claimed = True
            if filled.held:
                return ()
            queue.suspects.remove(suspect)
            filled.alone, filled.since = True, now
            filled.held[suspect.number] = suspect.task
            return (suspect,)
        filled.claimed = False
        return self._batch(filled, queue, now)

    def finished(self, slot: int, number: int, now: float) -> Task | None:
        """Note that a slot has finished a task, and return it; None if the slot does not hold it any more."""
        filled = self._slots[slot]
        task = filled.held.pop(number, None)
        if task is not None:
            filled.since = now
            self._deaths.pop(number, None)
        if not filled.held:
            filled.alone = filled.claimed = False
        return task

    def holds(self, slot: int, number: int) -> bool:
        """True if a slot has a task and has not finished it."""
        return number in self._slots[slot].held

    def note_seconds(self, slot: int, seconds: Sequence[float]) -> None:
        """Learn from the seconds that tasks took."""
        queue = self._queue(self._slots[slot].gpus)
        for taken in seconds:
            queue.mean = taken if queue.mean is None else queue.mean + _RECENT * (taken - queue.mean)

    def overdue(self, now: float) -> tuple[int, ...]:
        """Return the slots whose first task runs for longer than a batch, while others wait behind it."""
        late = now - self.batch_seconds
        return tuple(number for number, slot in self._slots.items() if len(slot.held) > 1 and slot.since < late)

    def give_back(self, slot: int, numbers: Sequence[int]) -> None:
        """Let tasks that a slot has not started wait again."""
        filled = self._slots[slot]
        tasks = {number: filled.held.pop(number) for number in numbers if number in filled.held}
        self._put_back(filled.gpus, tasks)

    def drop(self, gpus: int) -> tuple[Task, ...]:
        """Remove and return the tasks that wait for slots with so many GPUs."""
        queue = self._queue(gpus)
        dropped = (*queue.suspects, *queue.waiting)
        queue.suspects.clear()
        queue.waiting.clear()
        for numbered in dropped:
            self._deaths.pop(numbered.number, None)
        return tuple(numbered.task for numbered in dropped)

    def cancel(self) -> tuple[int, ...]:
        """Drop every task; return the slots that held some."""
        busy = tuple(number for number, slot in self._slots.items() if slot.held)
        for slot in self._slots.values():
            slot.held.clear()
            slot.alone = slot.claimed = False
        for queue in self._queues.values():
            queue.waiting.clear()
            queue.suspects.clear()
        self._deaths.clear()
        return busy

    def _queue(self, gpus: int) -> _Queue:
        return self._queues.setdefault(gpus, _Queue())

    def _put_back(self, gpus: int, tasks: dict[int, Task]) -> None:
        queue = self._queue(gpus)
        for number, task in reversed(tasks.items()):
            line = queue.suspects if number in self._deaths else queue.waiting
            line.appendleft(Numbered(number=number, task=task))

    def _runs_suspect(self, asking: _Slot) -> bool:
        """True if another slot of the same node runs a suspect, or is about to."""
        return any(
            slot is not asking and slot.node == asking.node and (slot.alone or slot.claimed)
            for slot in self._slots.values()
        )

    def _suspect_for(self, slot: _Slot, queue: _Queue) -> Numbered | None:
        """Return a suspect that a slot may run: not one whose node died, if the slot may be dead with that node."""
        return next(
            (
                suspect
                for suspect in queue.suspects
                if all(death.node != slot.node or death.at < slot.opened for death in self._deaths[suspect.number])
            ),
            None,
        )

    def _batch(self, slot: _Slot, queue: _Queue, now: float) -> tuple[Numbered, ...]:
        most = _FIRST_TASKS if queue.mean is None else _bounded(self.batch_seconds / max(queue.mean, 1e-6))
        if len(slot.held) > _FULL * most:
            return ()
        slots = sum(each.gpus == slot.gpus for each in self._slots.values())
        share = math.ceil(len(queue.waiting) / slots)  # towards the end, every slot gets something
        batch = [queue.waiting.popleft() for _ in range(min(most - len(slot.held), share))]
        if not slot.held:
            slot.since = now
        slot.held.update((numbered.number, numbered.task) for numbered in batch)
        return tuple(batch)


def _bounded(tasks: float) -> int:
    return max(1, min(int(tasks), _MOST_TASKS))
