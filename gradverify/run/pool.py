"""The engine of one machine: worker processes that live for many tasks, none of which can harm another.

This process stays light: torch is loaded once, in a server that every worker is forked from. A task that takes too
long is killed with everything it started; one whose worker dies is said to have crashed, once it has done so in a
worker that nothing had run in before.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Iterator

from gradverify.run.backlog import Backlog
from gradverify.run.crash_report import end_of, last_words
from gradverify.run.interrupts import Waiting
from gradverify.run.launch import Server, ServerError, order_end, order_worker, receive_news, start_server, stop_server
from gradverify.run.server_protocol import DIED, FORKED, READY
from gradverify.run.task import Begun, EngineEvent, Loss, Progress, Reply, Task, TaskDone, TaskLost, TaskStarted
from gradverify.run.worker_handle import Doom, Link, drain, ending, give, hang_up, hear

_DYING = 0.25  # seconds


class LocalPool:
    """Worker processes on this machine; see Engine for what each method promises."""

    def __init__(self, workers: int) -> None:
        self._workers = workers  # how many may live at a time
        self._backlog = Backlog()
        self._events: deque[EngineEvent] = deque()
        self._links: list[Link] = []
        self._unborn: deque[Link] = deque()  # ordered, in the order in which the server will name them
        self._selector = selectors.DefaultSelector()
        self._server: Server | None = None
        self._ready = False  # the server has said that it is there

    def start(self) -> None:
        """Start the server, which takes a moment to load torch, before the first task needs it. Raises ServerError."""
        if self._server is None:
            self._server, self._ready = start_server(), False
            self._selector.register(self._server.control, selectors.EVENT_READ, None)

    def submit(self, task: Task) -> None:
        """Take a task; it starts when there is a worker for it."""
        self._backlog.add(task)

    def next_event(self, waiting: Waiting = contextlib.nullcontext) -> EngineEvent | None:
        """Return the next event, None when no task is left. Raises ServerError where workers cannot be had."""
        while not self._events:
            self._assign()
            if not self._backlog and not any(link.task for link in self._links):
                return None
            with waiting():  # nothing is lost where this ends early: what is ready stays ready
                ready = self._selector.select(self._patience())
            for key, _ in ready:
                self._notice(key.data, key.fd)
            self._expire()
        self._assign()  # no worker waits while somebody looks at the event
        return self._events.popleft()

    def cancel(self) -> None:
        """Drop every task that is not finished; no event follows for them."""
        self._backlog.clear()
        self._events.clear()
        for link in self._links:
            if link.task is not None:
                link.task = None
                self._doom(link, Doom.DROPPED)

    def close(self) -> None:
        """End every worker at once; nothing can be submitted afterwards."""
        self._backlog.clear()
        for link in list(self._links):
            self._forget(link)
        if self._server is not None:
            stop_server(self._server)
            self._server = None
        self._selector.close()

    def _assign(self) -> None:
        """Give tasks to workers that wait, and order workers while there are more tasks than that."""
        while True:
            task = self._backlog.first({link.task.resource for link in self._links if link.task})
            link = self._worker_for(task) if task else None
            if task is None or link is None:
                return
            self._backlog.take(task)
            give(link, task)

    def _worker_for(self, task: Task) -> Link | None:
        """Return an idle worker, or a new one if there may be more; a suspect task gets one that is as good as new."""
        fresh = self._backlog.wants_fresh_worker(task)
        idle = [link for link in self._links if link.task is None and link.doom is None and link.deaf is None]
        fit = [link for link in idle if not (fresh and link.served)]
        if fit:  # a worker that has used the GPU before holds its memory already
            return min(fit, key=lambda link: link.resource != task.resource)
        if len(self._links) < self._workers:
            return self._order()
        if idle and not any(link.doom for link in self._links):
            self._doom(idle[0], Doom.SPENT)  # there is room when it has died
        return None

    def _order(self) -> Link:
        self.start()
        assert self._server is not None
        channel, output = order_worker(self._server)
        link = Link(channel=channel, output=output)
        self._links.append(link)
        self._unborn.append(link)
        self._selector.register(channel, selectors.EVENT_READ, link)
        self._selector.register(output, selectors.EVENT_READ, link)
        return link

    def _patience(self) -> float | None:
        """Return the seconds until the first worker has to be ended, None where none has a limit yet."""
        deadlines = [deadline for link in self._links for deadline, _ in _deadlines(link)]
        return max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None

    def _expire(self) -> None:
        now = time.monotonic()
        for link in self._links:
            for deadline, doom in _deadlines(link):
                if now >= deadline:
                    self._doom(link, doom)

    def _notice(self, link: Link | None, descriptor: int) -> None:
        if link is None:
            self._hear_server()
        elif link not in self._links:
            return  # forgotten a moment ago
        elif descriptor == link.output:
            if not drain(link):
                self._selector.unregister(link.output)
        else:
            self._hear_worker(link)

    def _hear_worker(self, link: Link) -> None:
        for message in hear(link):
            if isinstance(message, Begun):
                self._begin(link)
            elif isinstance(message, Progress):
                link.checks = message.checks
            elif isinstance(message, Reply):
                self._finish(link, message)
        if link.deaf is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(link.channel)

    def _begin(self, link: Link) -> None:
        link.begun = time.monotonic()
        if link.task is not None and self._backlog.is_news(link.task):
            self._events.append(TaskStarted(key=link.task.key))

    def _finish(self, link: Link, reply: Reply) -> None:
        drain(link)  # what it printed is its own, not the next task's
        if link.task is not None:
            self._backlog.settle(link.task)
            self._events.append(TaskDone(key=link.task.key, answer=reply.answer))
        link.task, link.begun = None, None
        link.served += 1
        if reply.spent:
            self._doom(link, Doom.SPENT)

    def _doom(self, link: Link, doom: Doom) -> None:
        """Have a worker killed; the first reason counts."""
        link.doom = link.doom or doom
        if self._server is not None and link.process is not None:
            order_end(self._server, link.process)

    def _hear_server(self) -> None:
        assert self._server is not None
        news = receive_news(self._server)
        if news is None:
            self._lose_server()
        elif news.what == READY:
            self._ready = True
        elif news.what == FORKED:
            self._name(self._unborn.popleft(), news.process)
        elif news.what == DIED:
            link = next((link for link in self._links if link.process == news.process), None)
            if link is not None:
                self._bury(link, ending(news.status, link.doom))

    def _name(self, link: Link, process: int) -> None:
        if not process:
            self._bury(link, "could not be given a process")
            return
        link.process = process
        if link.doom is not None and self._server is not None:
            order_end(self._server, process)

    def _bury(self, link: Link, how: str) -> None:
        """Say what became of a dead worker's task."""
        self._hear_worker(link)  # it may have answered before it died
        drain(link)
        task = link.task
        self._forget(link)
        if task is None:
            return
        if link.doom is Doom.TIMEOUT:
            self._lose(link, task, Loss.TIMEOUT, "")
        elif not self._backlog.try_again(task, begun=link.begun is not None, served=link.served):
            self._lose(link, task, Loss.CRASH, how)

    def _lose(self, link: Link, task: Task, loss: Loss, detail: str) -> None:
        self._backlog.settle(task)
        seconds = time.monotonic() - link.begun if link.begun is not None else 0.0
        words = last_words(link.tail.decode("utf-8", "replace"))
        output = end_of(words.printed)
        self._events.append(
            TaskLost(
                key=task.key,
                loss=loss,
                detail=detail,
                output=output,
                place=words.place,
                seconds=seconds,
                checks=link.checks,
            )
        )

    def _lose_server(self) -> None:
        """Go on with another server; what was running went down with this one."""
        assert self._server is not None
        self._selector.unregister(self._server.control)
        stop_server(self._server)
        self._server = None
        if not self._ready:
            raise ServerError("the process that starts the workers did not start; `-j 0` runs without workers")
        for link in list(self._links):
            self._bury(link, "crashed: the process that starts the workers was killed")

    def _forget(self, link: Link) -> None:
        self._links.remove(link)
        if link in self._unborn:
            self._unborn.remove(link)
        for end in (link.channel, link.output):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
        hang_up(link)


def _deadlines(link: Link) -> Iterator[tuple[float, Doom]]:
    """Yield when a worker has to be ended, and why; nothing where it was told to end already."""
    if link.doom is not None:
        return
    if link.task is not None and link.begun is not None:
        yield link.begun + link.task.timeout, Doom.TIMEOUT
    if link.deaf is not None:  # a process that dies closes its socket a moment before its death is known
        yield link.deaf + _DYING, Doom.DEAF
