"""The slots on the nodes of a cluster: started when there are tasks, filled, and buried when they die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import ray
from ray.exceptions import RayError

from gradverify.run.engines.cluster.actor import Slot
from gradverify.run.engines.cluster.capacity import Capacity
from gradverify.run.engines.cluster.connection import ClusterError, Node, last_line
from gradverify.run.engines.cluster.dispatch import BATCH_SECONDS, Dispatcher
from gradverify.run.engines.cluster.messages import Events, Opening, SlotNews
from gradverify.run.engines.cluster.wording import blamed, not_run, note_of_death
from gradverify.run.framing import packed
from gradverify.run.task import EngineEvent, Loss, Task, TaskLost

_TICK = 0.25  # seconds between two looks at what takes long
_LEAST_GATHERED = 0.75  # seconds of events in a message: each costs both processes as much as a small task
_MOST_MESSAGES = 1000  # of slots per second, which this process has time for
_IDLE_SECONDS = 60.0  # until a slot without tasks is given back to the cluster
_END_SECONDS = 3.0  # for the slots to end their workers
_RETRY_SECONDS = 1.0  # between slots that fail to start
_MOST_FAILURES = 3  # times that slots may fail to start, one after the other


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One actor. The fields change."""

    number: int
    gpus: int
    actor: Any = None  # None until its node is known
    serving: asyncio.Task[None] | None = None
    node: Node | None = None  # None until it runs
    idle_since: float | None = None  # None while it holds tasks


@dataclass(slots=True, kw_only=True)
class _Kind:
    """The slots with so many GPUs. The fields change."""

    since: float = field(default_factory=time.monotonic)  # when a slot was last up, or could have been
    failures: int = 0  # times that slots failed to start, one after the other
    retry: float = 0.0  # time before which no slot is started, after a failure
    reason: str = ""  # of the last failure


class Slots:
    """The slots of a run, and the tasks that they hold."""

    def __init__(self, opening: Opening, send: Callable[[Any], None]) -> None:
        self._opening = opening
        self._send = send  # sends a message to the light process
        self._accepted = False  # True once the nodes are known to be as they must be
        self._capacity = Capacity(opening.workers)
        self._dispatcher = Dispatcher()
        self._slots: dict[int, _Slot] = {}
        self._kinds: dict[int, _Kind] = {}
        self._numbers = count(1)
        self._actor = ray.remote(max_concurrency=4, max_restarts=0)(Slot)

    def start(self) -> None:
        """Start a slot per node, so that torch loads while specs are read."""
        self._grow(0, len(self._capacity.nodes()))

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are alive."""
        return self._capacity.nodes()

    def accept(self) -> None:
        """Begin to run tasks: the nodes are as they must be."""
        self._accepted = True
        for slot in list(self._slots.values()):
            self._refill(slot)

    def submit(self, tasks: Iterable[Task]) -> None:
        """Add tasks."""
        tasks = tuple(tasks)
        if any(task.device != "cpu" for task in tasks):
            self._capacity.look()  # else they would be skipped for want of a GPU whose node has only just come
        for task in tasks:
            self._dispatcher.add(task, self._capacity.gpus_for(task.device))
        for gpus in self._dispatcher.kinds():
            self._kinds.setdefault(gpus, _Kind()).since = time.monotonic()
            self._grow(gpus)
        for slot in list(self._slots.values()):
            self._refill(slot)

    async def cancel(self) -> tuple[bytes, ...]:
        """Drop every task. Return a pickled TaskLost for each that was trying other inputs."""
        busy = [self._slots[number] for number in self._dispatcher.cancel() if number in self._slots]
        answers = await _all_within(_END_SECONDS, [slot.actor.cancel.remote() for slot in busy])
        return tuple(frame for frames in answers for frame in frames)

    async def tick(self) -> None:
        """Look at what takes long, again and again."""
        while True:
            await asyncio.sleep(_TICK)
            for number in self._dispatcher.overdue(time.monotonic()):
                await self._recall(number)
            for slot in list(self._slots.values()):
                self._release_idle(slot)
            for gpus in self._dispatcher.kinds():
                self._give_up_on(gpus)
                self._grow(gpus)

    async def end(self) -> None:
        """End every slot, and what it has started on its node."""
        slots = list(self._slots.values())
        self._slots.clear()
        for slot in slots:
            if slot.serving is not None:
                slot.serving.cancel()
        stops = [slot.actor.stop.remote() for slot in slots if slot.node is not None]
        await _all_within(_END_SECONDS, stops)
        for slot in slots:
            _kill(slot)

    def _grow(self, gpus: int, least: int = 0) -> None:
        """Start slots as long as there are tasks for them."""
        kind = self._kinds.setdefault(gpus, _Kind())
        if kind.failures >= _MOST_FAILURES or time.monotonic() < kind.retry:
            return
        wanted = min(self._capacity.limit(gpus), max(self._dispatcher.unfinished(gpus), least))
        have = sum(slot.gpus == gpus for slot in self._slots.values())
        for _ in range(wanted - have):
            slot = _Slot(number=next(self._numbers), gpus=gpus)
            self._slots[slot.number] = slot
            slot.serving = asyncio.create_task(self._serve_slot(slot))

    async def _serve_slot(self, slot: _Slot) -> None:
        """Start a slot and hand on its events until it dies."""
        try:
            resources = {"num_cpus": 0, "num_gpus": slot.gpus} if slot.gpus else {"num_cpus": 1}
            slot.actor = self._actor.options(**resources).remote(self._opening.project, slot.gpus)
            identity = await slot.actor.node_id.remote()
            slot.node = self._capacity.node(identity)
            if slot.node is None:
                raise ClusterError("its node died")
            await slot.actor.begin.remote(slot.node.name)
            self._kinds[slot.gpus].failures = 0
            self._dispatcher.open(slot.number, slot.node.name, slot.gpus, time.monotonic())
            self._refill(slot)
            while slot.number in self._slots:
                self._take(slot, await slot.actor.news.remote(self._gathered()))
        except Exception as error:  # of Ray, or raised in the slot
            self._bury(slot, error)

    def _gathered(self) -> float:
        """Return for how many seconds a slot gathers events into a message, and let it hold work for longer."""
        seconds = max(_LEAST_GATHERED, len(self._slots) / _MOST_MESSAGES)
        self._dispatcher.batch_seconds = max(BATCH_SECONDS, seconds / _LEAST_GATHERED)
        return seconds

    def _take(self, slot: _Slot, news: SlotNews) -> None:
        """Hand on what happened in a slot, and send it more tasks."""
        now = time.monotonic()
        if slot.number not in self._slots:
            return
        frames = []
        for event in news.events:
            if self._dispatcher.holds(slot.number, event.number):
                frames.append(event.frame)
                if event.is_last:
                    self._dispatcher.finished(slot.number, event.number, now)
        self._dispatcher.note_seconds(slot.number, news.seconds)
        if frames:
            self._send(Events(frames=tuple(frames)))
        self._refill(slot)

    def _refill(self, slot: _Slot) -> None:
        if not self._accepted or slot.number not in self._slots or not self._is_up(slot):
            return
        now = time.monotonic()
        self._kinds[slot.gpus].since = now
        tasks = self._dispatcher.refill(slot.number, now)
        if tasks:
            slot.actor.add.remote(packed(tasks))
        slot.idle_since = (slot.idle_since or now) if self._dispatcher.is_idle(slot.number) else None

    def _is_up(self, slot: _Slot) -> bool:
        return slot.node is not None and self._dispatcher.knows(slot.number)

    async def _recall(self, number: int) -> None:
        """Take back the tasks behind one that takes long."""
        slot = self._slots.get(number)
        if slot is None:
            return
        with suppress(RayError):
            returned = await slot.actor.recall.remote()
            if number in self._slots:
                self._dispatcher.give_back(number, returned)
                for each in list(self._slots.values()):
                    self._refill(each)

    def _release_idle(self, slot: _Slot) -> None:
        """Give a slot back to the cluster that has had no task for some time."""
        if slot.idle_since is None or self._dispatcher.unfinished(slot.gpus):
            return  # a task of another slot may come back
        is_wanted = slot.gpus and any(gpus and self._dispatcher.waiting(gpus) for gpus in self._dispatcher.kinds())
        if not is_wanted and time.monotonic() - slot.idle_since < _IDLE_SECONDS:
            return
        self._forget(slot)
        self._dispatcher.close(slot.number)
        _kill(slot)

    def _bury(self, slot: _Slot, error: Exception) -> None:
        """Let the tasks of a dead slot run elsewhere, and report those that are to blame."""
        if slot.number not in self._slots:
            return  # it was killed
        self._forget(slot)
        _kill(slot)
        kind = self._kinds[slot.gpus]
        if not self._dispatcher.knows(slot.number):
            if time.monotonic() >= kind.retry:  # else it is one failure with those before
                kind.failures += 1
            kind.retry, kind.reason = time.monotonic() + _RETRY_SECONDS, last_line(error)
            return
        again, culprits = self._dispatcher.bury(slot.number, time.monotonic())
        for culprit in culprits:
            self._emit(blamed(culprit))
        if again and slot.node is not None:
            self._emit(note_of_death(slot.node.name, again))
        for each in list(self._slots.values()):
            self._refill(each)
        self._grow(slot.gpus)

    def _forget(self, slot: _Slot) -> None:
        del self._slots[slot.number]

    def _give_up_on(self, gpus: int) -> None:
        """Report tasks as lost that no node could run for some time."""
        if not self._dispatcher.waiting(gpus):
            return
        kind = self._kinds[gpus]
        up = any(slot.gpus == gpus and self._is_up(slot) for slot in self._slots.values())
        failing = kind.failures >= _MOST_FAILURES
        if up or (self._capacity.has_room(gpus) and not failing):
            kind.since = time.monotonic()
        elif failing or time.monotonic() - kind.since > self._opening.patience:
            detail = not_run(gpus, kind.reason if failing else "")
            for task in self._dispatcher.drop(gpus):
                self._emit(TaskLost(key=task.key, loss=Loss.CRASH, detail=detail))

    def _emit(self, event: EngineEvent) -> None:
        self._send(Events(frames=(packed(event),)))


async def _all_within(seconds: float, answers: list[Awaitable[Any]]) -> list[Any]:
    """Return the answers of slots that arrive in time."""
    if not answers:
        return []
    tasks = [asyncio.ensure_future(_answer(answer)) for answer in answers]
    done, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        task.cancel()
    return [task.result() for task in tasks if task in done and task.exception() is None]


async def _answer(answer: Awaitable[Any]) -> Any:
    return await answer


def _kill(slot: _Slot) -> None:
    with suppress(Exception):
        if slot.actor is not None:
            ray.kill(slot.actor)
