"""The queue of tasks that wait for a worker, with the number of workers each task has lost."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container

from gradverify.run.task import Task

_MAX_DEATHS_BEFORE_START = 3  # workers that may die holding a task that they have not started


class Backlog:
    """One first-in first-out queue of tasks per resource."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Task]] = {}  # by resource
        self._announced: set[str] = set()
        self._suspects: set[str] = set()  # tasks that lost a worker which had finished other tasks before
        self._deaths_before_start: Counter[str] = Counter()  # by task: workers that died before they started it

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def add(self, task: Task) -> None:
        """Add a task at the end of its resource's queue."""
        self._waiting.setdefault(task.resource, deque()).append(task)

    def first(self, busy: Container[str]) -> Task | None:
        """Return the next task whose resource is not in `busy`, without removing it."""
        free = (tasks for resource, tasks in self._waiting.items() if tasks and not (resource and resource in busy))
        tasks = next(free, None)
        return tasks[0] if tasks else None

    def take(self, task: Task) -> None:
        """Remove the task that `first` returned."""
        taken = self._waiting[task.resource].popleft()
        assert taken is task

    def is_first_start(self, task: Task) -> bool:
        """Return True at the first call for a task: it was not started before."""
        first = task.key not in self._announced
        self._announced.add(task.key)
        return first

    def needs_fresh_worker(self, task: Task) -> bool:
        """True if the task must run in a worker that has run nothing else, to find out whether the task crashes it."""
        return task.key in self._suspects

    def retry(self, task: Task, *, begun: bool, served: int) -> bool:
        """Put a task back if an earlier task may have killed its worker; return True if it was put back.

        `begun` says whether the worker had started the task, `served` how many tasks it had finished.
        """
        if not begun and self._deaths_before_start[task.key] < _MAX_DEATHS_BEFORE_START:
            self._deaths_before_start[task.key] += 1
        elif begun and served and task.key not in self._suspects:
            self._suspects.add(task.key)
        else:
            return False
        self._waiting[task.resource].appendleft(task)
        return True

    def settle(self, task: Task) -> None:
        """Forget a finished task, so that its key can be used again."""
        self._announced.discard(task.key)
        self._suspects.discard(task.key)
        self._deaths_before_start.pop(task.key, None)

    def clear(self) -> None:
        """Remove all tasks."""
        for record in (self._waiting, self._announced, self._suspects, self._deaths_before_start):
            record.clear()
