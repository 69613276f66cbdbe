"""One slot of a node: a Ray actor that runs tasks in a pool of its own, with one worker.

Whatever a task does to its process happens in a child of a child of the actor: crashes, time limits, memory limits and
output are the pool's business here as on one machine. The actor only carries tasks and events.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import ray

from gradverify.run.engines.cluster.messages import Numbered, Project, SlotEvent, SlotNews
from gradverify.run.framing import packed
from gradverify.run.moved_paths import packed_answer, received_work
from gradverify.run.pool import LocalPool
from gradverify.run.task import EngineEvent, PackedWork, Task, TaskAnswered, TaskLost, TaskStarted

_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}  # of slots without a GPU
# Folders of Ray's own that it puts on sys.path of its processes.
_PATHS_OF_RAY = (os.path.join("ray", "thirdparty_files"), os.path.join("ray", "_private", "workers"))  # noqa: PTH118


class Slot:
    """Runs tasks one after the other, in a thread. Ray calls the methods in other threads."""

    def __init__(self, project: Project, gpus: int) -> None:
        there = Path.cwd().resolve()  # Ray's copy of the project
        self._here, self._there = project.root, str(there)
        self._node = ""  # the name of the node that this slot is on
        folder = there / project.here
        folder.mkdir(parents=True, exist_ok=True)  # an empty folder, or one that is left out
        os.chdir(folder)
        if not gpus:
            os.environ.update(_HIDDEN)
        self._pool = LocalPool(1, _path_of_workers(project, there))
        self._using_pool = threading.Lock()
        self._changed = threading.Condition()  # of the fields below
        self._tasks: deque[Numbered] = deque()  # not started
        self._running: Numbered | None = None
        self._dropped: Numbered | None = None  # the last task that was running when all were dropped
        self._events: list[SlotEvent] = []
        self._seconds: list[float] = []
        self._failure: Exception | None = None  # which ended the thread
        threading.Thread(target=self._work, daemon=True).start()

    def node_id(self) -> str:
        """Return Ray's id of the node that this slot is on."""
        return str(ray.get_runtime_context().get_node_id())

    def begin(self, node: str) -> None:
        """Set the name of the node that events carry."""
        self._node = node

    def add(self, tasks: bytes) -> None:
        """Add tasks: a pickled sequence of Numbered."""
        with self._changed:
            self._tasks.extend(map(self._arrived, pickle.loads(tasks)))
            self._changed.notify_all()

    def news(self, seconds: float) -> SlotNews:
        """Wait for events, and return those of so many seconds, or at once if no task waits here.

        Raises what ended the slot's thread.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._failure)
            self._changed.wait_for(lambda: self._failure or not self._tasks, seconds)
            if self._failure and not self._events:
                raise self._failure
            news = SlotNews(events=tuple(self._events), seconds=tuple(self._seconds))
            self._events.clear()
            self._seconds.clear()
            return news

    def recall(self) -> tuple[int, ...]:
        """Remove the tasks that have not started, and return their numbers."""
        with self._changed:
            numbers = tuple(task.number for task in self._tasks)
            self._tasks.clear()
            return numbers

    def cancel(self) -> tuple[bytes, ...]:
        """Drop every task; no event follows. Return a pickled TaskLost for one that was trying other inputs."""
        with self._changed:
            self._tasks.clear()
            running = self._dropped = self._running
        with self._using_pool:
            lost = self._pool.cancel()
        with self._changed:
            self._events.clear()
            self._seconds.clear()
        if running is None:
            return ()
        return tuple(self._frame(event, running.task) for event in lost)

    def stop(self) -> None:
        """End the workers."""
        with self._using_pool, suppress(Exception):
            self._pool.close()

    def _work(self) -> None:
        try:
            with self._using_pool:
                self._pool.start()
            while True:
                self._run_next()
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _run_next(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._tasks)
            running = self._running = self._tasks.popleft()
            if not self._tasks:  # more can be sent while this one runs
                self._changed.notify_all()
        started = time.monotonic()
        with self._using_pool:
            if running is not self._dropped:
                self._pool.submit(running.task)
            while (event := self._pool.next_packed(self._unused)) is not None:
                self._note(event, running, time.monotonic() - started)
        with self._changed:
            self._running = None

    def _arrived(self, numbered: Numbered) -> Numbered:
        """Return a task that says where the project is."""
        assert isinstance(numbered.task.work, PackedWork)
        work = replace(numbered.task.work, here=self._here, there=self._there)
        return replace(numbered, task=replace(numbered.task, work=work))

    @contextmanager
    def _unused(self) -> Iterator[None]:
        """Let other threads use the pool while this one waits for it."""
        self._using_pool.release()
        try:
            yield
        finally:
            self._using_pool.acquire()

    def _note(self, event: EngineEvent | TaskAnswered, running: Numbered, seconds: float) -> None:
        is_last = isinstance(event, TaskAnswered | TaskLost)
        noted = SlotEvent(number=running.number, is_last=is_last, frame=self._frame(event, running.task))
        with self._changed:
            self._events.append(noted)
            if is_last:
                self._seconds.append(seconds)
            if len(self._events) == 1:  # waking a thread for each event would cost more than the event
                self._changed.notify_all()

    def _frame(self, event: EngineEvent | TaskAnswered, task: Task) -> bytes:
        if isinstance(event, TaskStarted):
            return packed(replace(event, where=self._node))
        if isinstance(event, TaskLost):  # the worker has moved the paths of an answer
            return packed_answer(event, task.work, received_work(task.work))
        return packed(event)


def _path_of_workers(project: Project, there: Path) -> Sequence[str]:
    """Return what workers import from: the folders of the project that the command imports from, then the node's."""
    own = [str((there / entry).resolve()) for entry in project.path]
    nodes = [entry for entry in sys.path if entry != str(there) and not entry.endswith(_PATHS_OF_RAY)]
    return list(dict.fromkeys([*own, *nodes, str(there)]))
