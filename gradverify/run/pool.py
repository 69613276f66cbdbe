"""The engine of one machine: worker processes that run many tasks each, isolated from each other.

This process does not load torch. A server loads it once and forks every worker. A task that exceeds its time limit is
killed with every process it started. A task counts as crashed only if it kills a worker that has run no other task, or
if its answer cannot be read; otherwise it is run again in such a worker.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Iterator, Sequence

from gradverify.run.backlog import Backlog
from gradverify.run.crash_report import crash_report, last_lines
from gradverify.run.interrupts import Waiting
from gradverify.run.launch import order_end, order_preparation, order_worker, receive_news
from gradverify.run.notepad import noted
from gradverify.run.options import EngineName
from gradverify.run.server_protocol import DIED, FORKED, READY
from gradverify.run.start_server import Server, ServerError, start_server, stop_server
from gradverify.run.task import (
    EngineEvent,
    Loss,
    Progress,
    Reply,
    Task,
    TaskAnswered,
    TaskLost,
    TaskStarted,
    TaskTrying,
    WorkStarted,
    unpacked,
)
from gradverify.run.worker_handle import (
    EndReason,
    WorkerHandle,
    close_handle,
    ending,
    read_output,
    receive_messages,
    send_task,
)

_TOLD_EVERY = 2.0  # seconds after which the tries of a search are told again
_DEATH_GRACE = 0.25  # seconds between the end of a worker's socket and killing it; a dying worker closes it first


class LocalPool:
    """Worker processes on this machine. See Engine for the methods."""

    name = EngineName.LOCAL.value

    def __init__(self, workers: int, path: Sequence[str] | None = None) -> None:
        self._workers = workers  # the most that live at a time
        self._path = path  # where workers import from; None: where this process does
        self._backlog = Backlog()
        self._events: deque[EngineEvent | TaskAnswered] = deque()
        self._living: list[WorkerHandle] = []
        self._ordered: deque[WorkerHandle] = deque()  # without a process id yet, in the order of the server's reports
        self._selector = selectors.DefaultSelector()
        self._server: Server | None = None
        self._ready = False  # True once the server has reported READY
        self._prepared = False  # True once the server was told to import what custom operators need
        self._environments = False  # True once a task needed an environment, in which modules are imported otherwise

    def start(self) -> None:
        """Start the server, which then loads torch, if it is not running. Raises ServerError."""
        if self._server is None:
            self._server, self._ready, self._prepared = start_server(self._path), False, False
            self._selector.register(self._server.control, selectors.EVENT_READ, None)

    def submit(self, task: Task) -> None:
        """Queue a task; it starts when a worker is idle."""
        self._environments = self._environments or bool(task.environment)
        if task.environment and self._prepared:
            self._stop_server()
        self._backlog.add(task)

    def next_event(self, waiting: Waiting = contextlib.nullcontext) -> EngineEvent | None:
        """Return the next event, None when no task is left. Raises ServerError if the server cannot be started."""
        event = self.next_packed(waiting)
        return None if event is None else unpacked(event)

    def next_packed(self, waiting: Waiting = contextlib.nullcontext) -> EngineEvent | TaskAnswered | None:
        """Return the next event as `next_event` does, but leave an answer packed, for a process that passes it on."""
        while not self._events:
            self._assign()
            if not self._backlog and not any(worker.task for worker in self._living):
                return None
            with waiting():  # an interrupt here loses nothing: descriptors stay ready
                ready = self._selector.select(self._select_timeout())
            for key, _ in ready:
                self._dispatch(key.data, key.fd)
            self._end_overdue()
        self._assign()  # workers get tasks before the caller handles the event
        return self._events.popleft()

    def cancel(self) -> tuple[TaskLost, ...]:
        """Drop every unfinished task; no event follows for them. Return those that were trying other inputs."""
        self._backlog.clear()
        self._events.clear()
        lost: list[TaskLost] = []
        for worker in self._living:
            if worker.task is not None:
                if worker.progress is not None:
                    lost.append(_lost(worker, worker.task, Loss.INTERRUPT))
                worker.task = None
                self._end_worker(worker, EndReason.DROPPED)
        return tuple(lost)

    def renew(self) -> None:
        """Drop every unfinished task and end every worker. The server stays: it has imported no module of the user."""
        self.cancel()
        for worker in self._living:
            self._end_worker(worker, EndReason.SPENT)

    def prepare(self) -> None:
        """Let the server import what custom operators import at their first call, unless that differs between tasks."""
        if self._server is not None and not self._prepared and not self._environments:
            self._prepared = True
            order_preparation(self._server)

    def close(self) -> None:
        """Kill every worker. Nothing can be submitted afterwards."""
        self._backlog.clear()
        for worker in list(self._living):
            self._remove(worker)
        if self._server is not None:
            stop_server(self._server)
            self._server = None
        self._selector.close()

    def _assign(self) -> None:
        """Send tasks to idle workers, and order new workers for the others."""
        while True:
            task = self._backlog.first({worker.task.resource for worker in self._living if worker.task})
            worker = self._worker_for(task) if task else None
            if task is None or worker is None:
                return
            self._backlog.take(task)
            send_task(worker, task)

    def _worker_for(self, task: Task) -> WorkerHandle | None:
        """Return an idle worker, else a new one, else None.

        A suspect task gets a worker that has run no task; any other task may get one that ran tasks of its environment.
        """
        fresh = self._backlog.needs_fresh_worker(task)
        idle = [
            worker
            for worker in self._living
            if worker.task is None and worker.end_reason is None and worker.closed_since is None
        ]
        fit = [worker for worker in idle if not worker.served or (not fresh and worker.environment == task.environment)]
        if fit:  # prefer one that has used the same GPU: it holds memory there
            return min(fit, key=lambda worker: worker.resource != task.resource)
        if len(self._living) < self._workers:
            return self._order_worker()
        if idle and not any(worker.end_reason for worker in self._living):
            self._end_worker(idle[0], EndReason.SPENT)  # a new worker replaces it after its death
        return None

    def _order_worker(self) -> WorkerHandle:
        self.start()
        assert self._server is not None
        channel, output, notepad = order_worker(self._server)
        worker = WorkerHandle(channel=channel, output=output, notepad=notepad)
        self._living.append(worker)
        self._ordered.append(worker)
        self._selector.register(channel, selectors.EVENT_READ, worker)
        self._selector.register(output, selectors.EVENT_READ, worker)
        return worker

    def _select_timeout(self) -> float | None:
        """Return the seconds until the next deadline of a worker, None if there is none."""
        deadlines = [deadline for worker in self._living for deadline, _ in _deadlines(worker)]
        return max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for worker in self._living:
            for deadline, end_reason in _deadlines(worker):
                if now >= deadline:
                    self._end_worker(worker, end_reason)

    def _dispatch(self, worker: WorkerHandle | None, descriptor: int) -> None:
        if worker is None:
            self._read_server()
        elif worker not in self._living:
            return  # removed while handling the descriptors before this one
        elif descriptor == worker.output:
            if not read_output(worker):
                self._selector.unregister(worker.output)
        else:
            self._read_worker(worker)

    def _read_worker(self, worker: WorkerHandle) -> None:
        for message in receive_messages(worker):
            if isinstance(message, WorkStarted):
                self._begin(worker)
            elif isinstance(message, Progress):
                self._note_progress(worker, message)
            elif isinstance(message, Reply):
                self._finish(worker, message)
        if worker.closed_since is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.channel)

    def _note_progress(self, worker: WorkerHandle, progress: Progress) -> None:
        worker.progress, worker.limited_since = progress, time.monotonic()
        is_due = worker.told is None or worker.limited_since - worker.told >= _TOLD_EVERY
        if is_due and worker.task is not None and progress.trying is not None:
            worker.told, found = worker.limited_since, progress.trying.so_far
            self._events.append(TaskTrying(key=worker.task.key, tries=found.tries, failures=len(found.failures)))

    def _begin(self, worker: WorkerHandle) -> None:
        worker.begun = worker.limited_since = time.monotonic()
        if worker.task is not None and self._backlog.is_first_start(worker.task):
            self._events.append(TaskStarted(key=worker.task.key))

    def _finish(self, worker: WorkerHandle, reply: Reply) -> None:
        read_output(worker)  # before the next task prints
        if worker.task is not None:
            self._backlog.settle(worker.task)
            self._events.append(TaskAnswered(key=worker.task.key, answer=reply.answer))
        worker.task, worker.begun, worker.limited_since = None, None, None
        worker.served += 1
        if reply.spent:
            self._end_worker(worker, EndReason.SPENT)

    def _end_worker(self, worker: WorkerHandle, end_reason: EndReason) -> None:
        """Order the death of a worker; the first reason is kept."""
        worker.end_reason = worker.end_reason or end_reason
        if self._server is not None and worker.process is not None:
            order_end(self._server, worker.process)

    def _read_server(self) -> None:
        assert self._server is not None
        news = receive_news(self._server)
        if news is None:
            self._replace_server()
        elif news.what == READY:
            self._ready = True
        elif news.what == FORKED:
            self._set_process(self._ordered.popleft(), news.process)
        elif news.what == DIED:
            worker = next((worker for worker in self._living if worker.process == news.process), None)
            if worker is not None:
                self._handle_death(worker, ending(news.status, worker.end_reason))

    def _set_process(self, worker: WorkerHandle, process: int) -> None:
        if not process:
            self._handle_death(worker, "could not be given a process")
            return
        worker.process = process
        if worker.end_reason is not None and self._server is not None:
            order_end(self._server, process)

    def _handle_death(self, worker: WorkerHandle, detail: str) -> None:
        """Remove a dead worker, and retry its task or report it lost."""
        self._read_worker(worker)  # it may have replied before it died
        read_output(worker)
        task, worker.progress = worker.task, worker.progress or noted(worker.notepad)
        self._remove(worker)
        if task is None:
            return
        if worker.end_reason is EndReason.TIMEOUT:
            self._report_lost(worker, task, Loss.TIMEOUT, "")
        elif not self._backlog.retry(task, begun=worker.begun is not None, served=worker.served):
            self._report_lost(worker, task, Loss.CRASH, detail)

    def _report_lost(self, worker: WorkerHandle, task: Task, loss: Loss, detail: str) -> None:
        self._backlog.settle(task)
        self._events.append(_lost(worker, task, loss, detail))

    def _replace_server(self) -> None:
        """Stop a server that has ended; the next order starts another. Raises ServerError if it was never ready."""
        if not self._ready:
            self._drop_server()
            raise ServerError("the process that starts the workers did not start; `-j 0` runs without workers")
        self._stop_server()

    def _stop_server(self) -> None:
        """Stop the server, with all of its workers; the next order starts another."""
        self._drop_server()
        for worker in list(self._living):
            self._handle_death(worker, "crashed: the process that starts the workers was killed")

    def _drop_server(self) -> None:
        assert self._server is not None
        self._selector.unregister(self._server.control)
        stop_server(self._server)
        self._server, self._prepared = None, False

    def _remove(self, worker: WorkerHandle) -> None:
        self._living.remove(worker)
        if worker in self._ordered:
            self._ordered.remove(worker)
        for end in (worker.channel, worker.output):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
        close_handle(worker)


def _lost(worker: WorkerHandle, task: Task, loss: Loss, detail: str = "") -> TaskLost:
    """Return how far a worker came with a task that it will not finish."""
    report = crash_report(worker.tail.decode("utf-8", "replace"))
    return TaskLost(
        key=task.key,
        loss=loss,
        detail=detail,
        output=last_lines(report.printed),
        place=report.place,
        seconds=time.monotonic() - worker.begun if worker.begun is not None else 0.0,
        checks=None if worker.progress is None else worker.progress.checks,
        trying=None if worker.progress is None else worker.progress.trying,
    )


def _deadlines(worker: WorkerHandle) -> Iterator[tuple[float, EndReason]]:
    """Yield the monotonic times at which to kill a worker, with the reasons; none if its death is ordered already."""
    if worker.end_reason is not None:
        return
    if worker.task is not None and worker.limited_since is not None:
        yield worker.limited_since + worker.task.timeout, EndReason.TIMEOUT
    if worker.closed_since is not None:  # or it is dying: then the server reports its death soon
        yield worker.closed_since + _DEATH_GRACE, EndReason.CHANNEL_CLOSED
