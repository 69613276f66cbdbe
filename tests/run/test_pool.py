"""The pool and the other engine with harmless tasks, and the framing of messages."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable
from fractions import Fraction

import pytest

from gradverify.result import CaseResult, Verdict
from gradverify.run.engines.open import open_engine
from gradverify.run.framing import packed, receive_frame, send_frame, take_frame
from gradverify.run.inprocess import InProcess
from gradverify.run.options import EngineOptions
from gradverify.run.pool import LocalPool
from gradverify.run.start_server import start_early, start_server, stop_server
from gradverify.run.task import (
    Devices,
    Engine,
    Environment,
    FunctionCall,
    FunctionResult,
    Loss,
    Task,
    TaskAnswered,
    TaskDone,
    TaskLost,
    TaskStarted,
    unpacked,
)
from tests.run.making import case, run
from tests.run.processes import left_over, offspring


def drive(engine: Engine, tasks: list[Task]) -> list[tuple[str, str]]:
    for task in tasks:
        engine.submit(task)
    seen = []
    while (event := engine.next_event()) is not None:
        seen.append((type(event).__name__, event.key))
    return seen


@pytest.mark.slow
def test_tasks_of_one_resource_run_one_at_a_time(engine: Engine) -> None:
    tasks = [Task(key=str(n), work=case("Square"), timeout=20, resource="gpu") for n in range(4)]
    seen = drive(engine, tasks)
    assert seen == [(kind, str(n)) for n in range(4) for kind in ("TaskStarted", "TaskDone")]


@pytest.mark.slow
def test_a_task_that_waits_for_its_resource_holds_up_no_other(engine: Engine) -> None:
    tasks = [
        Task(key="slow", work=case("stop", "faults.py"), timeout=0.5, resource="gpu"),
        Task(key="waits", work=case("Square"), timeout=20, resource="gpu"),
        *(Task(key=f"free{n}", work=case("Square"), timeout=20) for n in range(3)),
    ]
    seen = [key for kind, key in drive(engine, tasks) if kind != "TaskStarted"]
    assert set(seen[:3]) == {"free0", "free1", "free2"}
    assert seen[3:] == ["slow", "waits"]


@pytest.mark.slow
def test_a_crash_caused_by_an_earlier_case_is_retried(engine: Engine) -> None:
    cases = [case("poison", "faults.py")]
    cases += [case("Square", id=f"spec/{n}/cpu") for n in range(6)]
    found = run(cases, engine)
    assert {result.verdict for result in found.values()} == {Verdict.PASS}


@pytest.mark.slow
def test_a_key_can_be_used_again(engine: Engine) -> None:
    task = Task(key="again", work=case("Square"), timeout=20)
    once = drive(engine, [task])
    assert once == drive(engine, [task]) == [("TaskStarted", "again"), ("TaskDone", "again")]


@pytest.mark.slow
def test_cancelled_tasks_are_silent(engine: Engine) -> None:
    engine.submit(Task(key="stopped", work=case("stop", "faults.py"), timeout=20))
    engine.submit(Task(key="waiting", work=case("Square"), timeout=20))
    assert isinstance(engine.next_event(), TaskStarted)
    engine.cancel()
    assert engine.next_event() is None
    assert drive(engine, [Task(key="next", work=case("Square"), timeout=20)])[-1] == ("TaskDone", "next")


def has_imported(module: str) -> bool:
    """Run in a worker: True if the module was imported there."""
    return module in sys.modules


def imported(pool: LocalPool, module: str, environment: Environment = ()) -> object:
    """Return whether a new worker has imported a module before its first task."""
    call = FunctionCall(function=f"{__name__}:has_imported", argument=module)
    pool.renew()
    pool.submit(Task(key="asks", work=call, timeout=20, environment=environment))
    while not isinstance(event := pool.next_event(), TaskDone):
        assert event is not None
    assert isinstance(event.answer, FunctionResult)
    return event.answer.value


@pytest.mark.slow
def test_a_prepared_pool_forks_workers_that_have_what_custom_operators_import_but_none_with_an_environment() -> None:
    environment = (("HANDMADE", "1"),)
    pool = LocalPool(1)
    try:
        assert not imported(pool, "torch._dynamo")
        pool.prepare()
        assert imported(pool, "torch._dynamo")
        assert not imported(pool, "torch._dynamo", environment)
        pool.prepare()
        assert not imported(pool, "torch._dynamo")
        assert not imported(pool, "torch._dynamo", environment)
    finally:
        pool.close()


def test_in_process() -> None:
    engine = InProcess()
    engine.submit(Task(key="one", work=case("Square"), timeout=20))
    engine.submit(Task(key="two", work=case("Square"), timeout=20))
    assert engine.next_event() == TaskStarted(key="one")
    done = engine.next_event()
    assert isinstance(done, TaskDone)
    assert isinstance(done.answer, CaseResult)
    engine.cancel()
    assert engine.next_event() is None
    engine.close()


def test_the_number_of_workers_chooses_the_engine() -> None:
    assert isinstance(open_engine(EngineOptions(workers=0)), InProcess)
    for workers in (None, 3):
        pool = open_engine(EngineOptions(workers=workers))
        assert isinstance(pool, LocalPool)
        pool.close()  # without having started a worker


def test_frames_round_trip() -> None:
    left, right = socket.socketpair()
    with left, right:
        send_frame(left, case("Square"))
        assert receive_frame(right) == case("Square")
        send_frame(left, {"a": 1})
        buffer = bytearray()
        for byte in right.recv(4096):
            assert take_frame(buffer) is None
            buffer.append(byte)
        assert take_frame(buffer) == {"a": 1}
        assert not buffer
        left.close()
        with pytest.raises(EOFError):
            receive_frame(right)


def test_a_frame_with_a_foreign_class_is_refused() -> None:
    left, right = socket.socketpair()
    with left, right:
        send_frame(left, Fraction(1, 2))
        with pytest.raises(pickle.UnpicklingError, match=r"fractions.Fraction does not belong"):
            take_frame(bytearray(right.recv(4096)))


def test_an_answer_with_a_foreign_class_costs_its_own_task() -> None:
    """User code can write to any socket, and a process that passes answers on does not unpack them."""
    answer = Devices(names=("cpu",))
    assert unpacked(TaskAnswered(key="a", answer=packed(answer))) == TaskDone(key="a", answer=answer)
    for body in (packed(Fraction(1, 2)), packed(Verdict.PASS), packed(answer)[:-4], b""):
        lost = unpacked(TaskAnswered(key="a", answer=body))
        assert isinstance(lost, TaskLost)
        assert (lost.key, lost.loss) == ("a", Loss.CRASH)


class _ByAttribute:
    """Pickled as the first releases of Python 3.11 pickle a member of an Enum."""

    def __init__(self, owner: object, name: str) -> None:
        self.owner, self.name = owner, name

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (self.owner, self.name)


def test_enum_members_pickled_by_getattr_are_accepted() -> None:
    left, right = socket.socketpair()
    with left, right:
        send_frame(left, _ByAttribute(Verdict, "INCONCLUSIVE"))
        assert take_frame(bytearray(right.recv(4096))) is Verdict.INCONCLUSIVE
        send_frame(left, _ByAttribute(CaseResult, "__init__"))
        with pytest.raises(pickle.UnpicklingError, match=r"'__init__' of .*CaseResult.* does not belong"):
            take_frame(bytearray(right.recv(4096)))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_server_that_was_started_early_is_used_only_where_it_would_be_started_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_used_after(change: Callable[[], object]) -> bool:
        before = set(offspring(os.getpid()))
        start_early()
        (early,) = set(offspring(os.getpid())) - before
        change()
        server = start_server()
        is_used = server.process.pid == early
        assert is_used or not left_over([early])
        stop_server(server)
        assert not left_over([early, server.process.pid])
        return is_used

    assert is_used_after(lambda: None)
    assert not is_used_after(lambda: monkeypatch.setenv("GRADVERIFY_TEST_VARIABLE", "1"))
    assert not is_used_after(lambda: monkeypatch.syspath_prepend("elsewhere"))
