"""Cases on a Ray cluster of several nodes: the same results as on this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gradverify.case import Expectation, Exploring, Literal, Normal, TensorInput
from gradverify.result import Verdict
from gradverify.run.engines.cluster.engine import RayEngine
from gradverify.run.pool import LocalPool
from gradverify.run.start_server import ServerError
from gradverify.run.task import Engine, FunctionCall, FunctionResult, Loss, Task, TaskDone, TaskStarted, TaskTrying
from tests.run.cluster.conftest import Nodes, command_of
from tests.run.cluster.making import case, numbered, timeless
from tests.run.making import outcome, run
from tests.run.processes import left_over, offspring

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]  # one process starts the cluster

X = TensorInput(origin=Normal(), shape=(3,))


def test_changed_files_reach_the_nodes_when_the_engine_is_renewed(
    nodes: Nodes, shared: RayEngine, project: Path
) -> None:
    nodes.ensure("alpha")  # one slot is enough
    file = project / "ops" / "changing.py"
    file.write_text("def f(x):\n    return x.detach() * x\n")
    changing = case("f", "changing.py")
    shared.renew()
    assert run([changing], shared)["f"].verdict is Verdict.FAIL
    file.write_text("def f(x):\n    return x * x\n")
    assert run([changing], shared)["f"].verdict is Verdict.FAIL
    shared.renew()
    assert run([changing], shared)["f"].verdict is Verdict.PASS


def test_the_same_bytes_as_on_this_machine(pool: LocalPool, shared: RayEngine) -> None:
    all_three = ("gradcheck", "gradgradcheck", "contract")
    cases = [
        case("Square", checks=all_three),
        case("WrongCube", checks=all_three, expect=Expectation(verdict=Verdict.FAIL)),
        case("Scaled", inputs={"x": X, "shift": Literal(value=1.0)}, init={"size": 3}),
        case("noise", stochastic=True),
        case("unruly", "faults.py"),
        case("Drawn", "drawn.py"),
        case("Square", id="spec/gpu/cuda-float64", device="cuda"),
        case("nothing", "raises.py"),
        *numbered("Square", "good.py", 10),
    ]
    here, there = outcome(cases, pool).report, outcome(cases, shared).report
    assert (here.engine, there.engine) == ("local", "ray")
    assert timeless(here) == timeless(replace(there, engine="local"))


def test_a_fault_costs_its_own_case_as_on_this_machine(pool: LocalPool, shared: RayEngine) -> None:
    names = ["segfault", "exit_now", "killed", "close_all", "flood", "odd_text", "unpicklable", "memory"]
    cases = [case(name, "faults.py") for name in names]
    cases += [case("hang", "faults.py", timeout=2.0), case("hoard", "faults.py")]
    cases += [case("poison", "faults.py"), *numbered("Square", "good.py", 5)]
    here, there = (outcome(cases, each, memory=256 << 20).report for each in (pool, shared))
    assert timeless(here) == timeless(replace(there, engine="local"))
    assert sum(result.verdict is Verdict.ERROR for result in there.cases) >= len(names)


def test_cancelled_tasks_are_silent_and_the_engine_goes_on(shared: RayEngine) -> None:
    for wanted in numbered("slow", "clustered.py", 8, inputs={"x": X, "seconds": Literal(value=50.0)}):
        shared.submit(Task(key=wanted.id, work=wanted, timeout=30))
    assert isinstance(shared.next_event(), TaskStarted)
    assert shared.cancel() == ()
    assert shared.next_event() is None
    assert run([case("Square")], shared)["Square"].verdict is Verdict.PASS


def test_what_had_been_found_at_other_inputs_is_kept_when_cancelled(shared: RayEngine) -> None:
    wanted = case("slow", "clustered.py", exploring=Exploring(budget=400))
    shared.submit(Task(key=wanted.id, work=wanted, timeout=30))
    while not isinstance(shared.next_event(), TaskTrying):
        pass
    (lost,) = shared.cancel()
    assert (lost.key, lost.loss) == (wanted.id, Loss.INTERRUPT)
    assert lost.checks is not None
    assert lost.trying is not None


def test_gpu_cases_ask_for_a_gpu_and_others_occupy_none(nodes: Nodes, shared: RayEngine) -> None:
    nodes.add("gpus", num_gpus=2, num_cpus=0)
    asking = FunctionCall(function="os:getenv", argument="CUDA_VISIBLE_DEVICES")  # the GPUs that a worker sees
    tasks = [Task(key=f"cpu{number}", work=asking, timeout=20) for number in range(4)]
    tasks += [Task(key="gpu", work=asking, timeout=20, device="cuda", resource="cuda:0")]
    tasks += [Task(key="both", work=asking, timeout=20, device="cuda:1", resource="cuda:1")]
    answers = values_of(shared, tasks)
    assert {answers[f"cpu{number}"] for number in range(4)} == {""}
    assert answers["gpu"] in ("0", "1")
    assert answers["both"] in ("0,1", "1,0")


def values_of(engine: Engine, tasks: list[Task]) -> dict[str, object]:
    for task in tasks:
        engine.submit(task)
    answers: dict[str, object] = {}
    while (event := engine.next_event()) is not None:
        if isinstance(event, TaskDone):
            assert isinstance(event.answer, FunctionResult)
            answers[event.key] = event.answer.value
    return answers


def test_an_address_at_which_nothing_answers(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.chdir(project)
    engine = RayEngine(workers=None, address="127.0.0.1:9")
    try:
        with pytest.raises(ServerError, match=r"--ray-address 127\.0\.0\.1:9: no Ray cluster answers there; start one"):
            run([case("Square")], engine)
    finally:
        engine.close()


def test_ray_that_is_started_for_a_run_ends_with_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.chdir(project)
    before = set(offspring(os.getpid()))
    engine = RayEngine(workers=1, address="local")
    try:
        assert run([case("Square")], engine)["Square"].verdict is Verdict.PASS
        started = set(offspring(os.getpid())) - before
        assert any("raylet" in command_of(process) for process in started)
    finally:
        engine.close()
    assert not left_over(started)
