"""The engine without workers, for debuggers: nothing is isolated, nothing is captured, no time limit holds."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext

from gradverify.run.interrupts import Waiting
from gradverify.run.task import EngineEvent, Task, TaskDone, TaskStarted


class InProcess:
    """Performs tasks in this process, one after the other; see Engine for what each method promises."""

    def __init__(self) -> None:
        self._queue: deque[Task] = deque()
        self._started: Task | None = None

    def submit(self, task: Task) -> None:
        """Take a task; it is performed when its event is asked for."""
        self._queue.append(task)

    def next_event(self, waiting: Waiting = nullcontext) -> EngineEvent | None:
        """Say that the next task starts, and at the next call perform it; None when no task is left."""
        if self._started is None:
            if not self._queue:
                return None
            self._started = self._queue.popleft()
            return TaskStarted(key=self._started.key)
        task, self._started = self._started, None
        with waiting():
            from gradverify.run.run_work import perform  # torch is loaded here, and only if it comes to this
            from gradverify.run.state import state_now

            answer = perform(task.work, state_now())
        return TaskDone(key=task.key, answer=answer)

    def cancel(self) -> None:
        """Drop every task that is not finished."""
        self._queue.clear()
        self._started = None

    def close(self) -> None:
        """Drop every task."""
        self.cancel()
