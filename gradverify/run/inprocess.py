"""The engine without workers, for debuggers: no isolation, no captured output, no time limits."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext

from gradverify.run.interrupts import Waiting
from gradverify.run.task import EngineEvent, Task, TaskDone, TaskStarted


class InProcess:
    """Runs tasks in this process, one after the other. See Engine for the methods."""

    def __init__(self) -> None:
        self._queue: deque[Task] = deque()
        self._started: Task | None = None

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
        with waiting():
            from gradverify.run.run_work import run_work  # loads torch: only when a task runs
            from gradverify.run.state import current_state

            answer = run_work(task.work, current_state(), task.environment)
        return TaskDone(key=task.key, answer=answer)

    def cancel(self) -> None:
        """Remove every task that is not finished."""
        self._queue.clear()
        self._started = None

    def close(self) -> None:
        """Remove every task."""
        self.cancel()
