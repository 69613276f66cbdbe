"""The engine without workers, for debuggers: no isolation, no captured output, no time limits."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext

from gradverify.run.interrupts import Waiting
from gradverify.run.moved_paths import received_work
from gradverify.run.options import EngineName
from gradverify.run.task import EngineEvent, Loss, Progress, Task, TaskDone, TaskLost, TaskStarted


class InProcess:
    """Runs tasks in this process, one after the other. See Engine for the methods."""

    name = EngineName.LOCAL.value

    def __init__(self) -> None:
        self._queue: deque[Task] = deque()
        self._started: Task | None = None
        self._running: Task | None = None
        self._progress: Progress | None = None  # of the running task

    def submit(self, task: Task) -> None:
        """Queue a task; `next_event` runs it."""
        self._queue.append(task)

    def next_event(self, waiting: Waiting = nullcontext) -> EngineEvent | None:
        """Return TaskStarted for the next task, and at the next call run it; None when no task is left."""
        if self._started is None:
            if not self._queue:
                return None
            self._started = self._queue.popleft()
            return TaskStarted(key=self._started.key)
        task, self._started = self._started, None
        self._running, self._progress = task, None
        with waiting():
            from gradverify.run.run_work import run_work  # loads torch: only when a task runs
            from gradverify.run.state import current_state

            work = received_work(task.work)
            answer = run_work(work, current_state(), task.environment, on_progress=self._note_progress)
        self._running = None
        return TaskDone(key=task.key, answer=answer)

    def _note_progress(self, progress: Progress) -> None:
        self._progress = progress

    def cancel(self) -> tuple[TaskLost, ...]:
        """Remove every task that is not finished; return the one that was trying other inputs, if there is one."""
        running, reached = self._running, self._progress
        self._queue.clear()
        self._started = self._running = self._progress = None
        if running is None or reached is None or reached.trying is None:
            return ()
        lost = TaskLost(key=running.key, loss=Loss.INTERRUPT, checks=reached.checks, trying=reached.trying)
        return (lost,)

    def renew(self) -> None:
        """Remove every task. Modules stay imported: there is no other process."""
        self.cancel()

    def prepare(self) -> None:
        """Do nothing: modules that were imported stay."""

    def close(self) -> None:
        """Remove every task."""
        self.cancel()
