"""The tasks that wait for a worker, and what has happened to them so far."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container

from gradverify.run.task import Task

_MOST_EARLY = 3  # workers that may die with a task before they began it


class Backlog:
    """Waiting tasks in the order of their coming, apart for each resource."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Task]] = {}  # by resource
        self._announced: set[str] = set()
        self._suspects: set[str] = set()  # tasks that lost a worker which had served others before
        self._early: Counter[str] = Counter()  # workers that died with a task before they began it

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def add(self, task: Task) -> None:
        """Take a new task."""
        self._waiting.setdefault(task.resource, deque()).append(task)

    def first(self, busy: Container[str]) -> Task | None:
        """Return the next task whose resource is not busy; it stays here until it is taken."""
        free = (tasks for resource, tasks in self._waiting.items() if tasks and not (resource and resource in busy))
        tasks = next(free, None)
        return tasks[0] if tasks else None

    def take(self, task: Task) -> None:
        """Remove the task that `first` returned."""
        taken = self._waiting[task.resource].popleft()
        assert taken is task

    def is_news(self, task: Task) -> bool:
        """Tell whether it is the first time that a task starts."""
        first = task.key not in self._announced
        self._announced.add(task.key)
        return first

    def wants_fresh_worker(self, task: Task) -> bool:
        """Tell whether a task is to show in a worker of its own whose fault a crash was."""
        return task.key in self._suspects

    def try_again(self, task: Task, *, begun: bool, served: int) -> bool:
        """Put back a task whose worker died of something that may have come before; return whether it was."""
        if not begun and self._early[task.key] < _MOST_EARLY:
            self._early[task.key] += 1
        elif begun and served and task.key not in self._suspects:
            self._suspects.add(task.key)
        else:
            return False
        self._waiting[task.resource].appendleft(task)
        return True

    def settle(self, task: Task) -> None:
        """Forget a task that has its answer; its key may come again."""
        self._announced.discard(task.key)
        self._suspects.discard(task.key)
        self._early.pop(task.key, None)

    def clear(self) -> None:
        """Forget every task."""
        for record in (self._waiting, self._announced, self._suspects, self._early):
            record.clear()
