"""An interrupt at any step ends the run at once, and finished results are kept."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from gradverify.case import Case, Signature, Target, TargetKind
from gradverify.result import CaseResult
from gradverify.run.interrupts import Interrupts, Waiting, held_interrupts
from gradverify.run.options import Event, Finished, RunOptions
from gradverify.run.outcome import skipped
from gradverify.run.session import run_cases
from gradverify.run.task import Devices, Engine, EngineEvent, Loaded, Task, TaskDone, TaskLost, TaskStarted
from tests.run.making import case

CASES = [case("Square", id=f"spec/{number}/cpu") for number in range(3)]


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class FakeEngine:
    """An engine that finishes every task at once, and calls `at` with the name of each step."""

    name = "fake"

    def __init__(self, at: Callable[[str], None]) -> None:
        self.at = at
        self.events: list[EngineEvent] = []

    def submit(self, task: Task) -> None:
        self.at(f"submit {task.key}")
        self.events += [TaskStarted(key=task.key), TaskDone(key=task.key, answer=answer_to(task))]

    def next_event(self, waiting: Waiting = nullcontext) -> EngineEvent | None:
        with waiting():
            self.at("wait")
        self.at("hand out")
        return self.events.pop(0) if self.events else None

    def cancel(self) -> tuple[TaskLost, ...]:
        self.at("cancel")
        return ()

    def close(self) -> None:
        self.at("close")


def answer_to(task: Task) -> CaseResult | Loaded | Devices:
    if isinstance(task.work, Case):
        return skipped(task.work, "made up")
    if isinstance(task.work, Target):
        return Loaded(signature=Signature(kind=TargetKind.CALLABLE, parameters=None), source=None)
    return Devices(names=("cpu",))


def interrupted_at(step: str, occurrence: int = 1) -> tuple[list[str], bool]:
    """Run three cases with an interrupt at one step; return the finished ids, and True if the run was interrupted."""
    seen: list[str] = []

    def at(found: str) -> None:
        seen.append(found)
        if found == step and seen.count(step) == occurrence:
            interrupt()

    def on_event(event: Event) -> None:
        at(f"finished {event.result.id}" if isinstance(event, Finished) else f"started {event.case_id}")

    outcome = run_cases(CASES, (), RunOptions(), on_event, FakeEngine(at))
    assert seen.count(step) >= occurrence
    return [result.id for result in outcome.report.cases], outcome.interrupted


@pytest.mark.parametrize(
    ("step", "occurrence", "finished"),
    [
        ("wait", 1, 0),
        ("hand out", 1, 0),
        ("submit spec/0/cpu", 1, 0),
        ("started spec/0/cpu", 1, 0),
        ("finished spec/0/cpu", 1, 1),
        ("finished spec/2/cpu", 1, 3),
        ("cancel", 1, 3),
    ],
)
def test_an_interrupt_at_any_step_keeps_what_had_finished(step: str, occurrence: int, finished: int) -> None:
    ids = [wanted.id for wanted in CASES]
    assert interrupted_at(step, occurrence) == (ids[:finished], True)


def test_interrupt_while_an_event_is_returned_loses_no_result() -> None:
    # two events for the devices and two for the target, then None; then the first case starts and is done
    assert interrupted_at("hand out", 5 + 2) == ([CASES[0].id], True)


@pytest.mark.slow
def test_interrupt_after_the_last_result_keeps_it(engine: Engine) -> None:
    def on_event(event: Event) -> None:
        if isinstance(event, Finished) and event.result.id == CASES[-1].id:
            interrupt()

    outcome = run_cases(CASES[-1:], (), RunOptions(), on_event, engine)
    assert outcome.interrupted
    assert [result.id for result in outcome.report.cases] == [CASES[-1].id]


def test_interrupts_raise_only_in_waiting_and_after_one_more_in_finishing() -> None:
    interrupts = Interrupts()
    assert not interrupts
    with pytest.raises(KeyboardInterrupt), interrupts.waiting():
        interrupts.note()
    assert interrupts
    interrupts.note()
    with pytest.raises(KeyboardInterrupt), interrupts.waiting():
        raise AssertionError("not reached")
    with interrupts.finishing():
        interrupts.note()
        with pytest.raises(KeyboardInterrupt):
            interrupts.note()


def test_signal_handlers_are_restored_and_ignored_signals_stay_ignored() -> None:
    def mine(*_: object) -> None:
        raise AssertionError("not called")

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGTERM, mine)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with held_interrupts() as held:
            interrupt()
            os.kill(os.getpid(), signal.SIGINT)
            assert held
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_another_thread_leaves_the_handlers_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def look() -> None:
        with held_interrupts():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
