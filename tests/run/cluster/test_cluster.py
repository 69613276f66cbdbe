"""Cases on a Ray cluster of several nodes: the same results as on this machine, also when nodes die."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradverify.case import Case, Expectation, Exploring, Literal, Normal, TensorInput
from gradverify.report.to_json import to_json
from gradverify.result import Report, Verdict
from gradverify.run.engines.cluster.engine import RayEngine
from gradverify.run.launch import ServerError
from gradverify.run.options import Event, Finished, Noted, Started
from gradverify.run.task import Engine, FunctionCall, FunctionResult, Loss, Task, TaskDone, TaskStarted, TaskTrying
from tests.run.cluster.conftest import Nodes, command_of
from tests.run.making import case, outcome, run
from tests.run.processes import left_over, offspring

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]  # one process starts the cluster

X = TensorInput(origin=Normal(), shape=(3,))


def numbered(name: str, file: str, count: int, **changes: Any) -> list[Case]:
    return [
        case(name, file, id=f"spec/{name}{number}/cpu-float64", draw_key=f"spec/{name}{number}", **changes)
        for number in range(count)
    ]


def timeless(report: Report) -> str:
    cases = tuple(replace(result, seconds=0.0) for result in report.cases)
    return to_json(replace(report, summary=replace(report.summary, seconds=0.0), cases=cases))


def test_the_same_bytes_as_on_this_machine(engine: Engine, shared: RayEngine) -> None:
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
    here, there = outcome(cases, engine).report, outcome(cases, shared).report
    assert (here.engine, there.engine) == ("local", "ray")
    assert timeless(here) == timeless(replace(there, engine="local"))


def test_a_fault_costs_its_own_case_as_on_this_machine(engine: Engine, shared: RayEngine) -> None:
    names = ["segfault", "exit_now", "killed", "close_all", "flood", "odd_text", "unpicklable", "memory"]
    cases = [case(name, "faults.py") for name in names]
    cases += [case("hang", "faults.py", timeout=0.5), case("hoard", "faults.py")]
    cases += [case("poison", "faults.py"), *numbered("Square", "good.py", 5)]
    here, there = (outcome(cases, each, memory=256 << 20).report for each in (engine, shared))
    assert timeless(here) == timeless(replace(there, engine="local"))
    assert sum(result.verdict is Verdict.ERROR for result in there.cases) >= len(names)


def test_a_node_that_dies_half_way_costs_nothing(nodes: Nodes, shared: RayEngine) -> None:
    cases = numbered("slow", "clustered.py", 60)
    finished: list[str] = []
    places: dict[str, list[str]] = {}
    notes: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Started):
            places.setdefault(event.case_id, []).append(event.where)
        elif isinstance(event, Noted):
            notes.append(event.text)
        elif isinstance(event, Finished):
            finished.append(event.result.id)
            if len(finished) == 30:
                nodes.kill("beta")

    events = _Events(on_event)
    report = outcome(cases, shared, events).report  # type: ignore[arg-type]
    assert [result.id for result in report.cases] == [wanted.id for wanted in cases]
    assert {result.verdict for result in report.cases} == {Verdict.PASS}
    assert sorted(finished) == sorted(wanted.id for wanted in cases)
    assert {where for wheres in places.values() for where in wheres} == {"alpha", "beta"}
    assert all(wheres[-1] == "alpha" for wheres in places.values() if len(wheres) > 1)
    (note,) = notes
    assert note.startswith("node beta of the cluster died, or Ray's process on it; ")
    assert note.endswith(" again elsewhere")


class _Events:
    """Stands for a list of events, and hands on what is appended."""

    def __init__(self, append: Callable[[Event], None]) -> None:
        self.append = append


def test_a_case_that_takes_down_two_nodes_is_the_culprit(nodes: Nodes, shared: RayEngine) -> None:
    nodes.ensure("alpha", "beta", "gamma")
    cases = [*numbered("Square", "good.py", 6), case("kill_node", "clustered.py"), *numbered("slow", "clustered.py", 6)]
    found = run(cases, shared)
    blamed = found.pop("kill_node")
    assert {result.verdict for result in found.values()} == {Verdict.PASS}
    assert len(found) == 12
    assert blamed.verdict is Verdict.ERROR
    assert blamed.message.startswith("GV905: took down 2 nodes of the cluster that it ran on, ")
    assert "Run it alone with --engine local to see what it does" in blamed.message


def test_a_case_that_ends_rays_process_twice_is_the_culprit(shared: RayEngine) -> None:
    found = run([case("kill_slot", "clustered.py"), *numbered("Square", "good.py", 6)], shared)
    assert found.pop("kill_slot").message.startswith("GV905: took down 2 nodes of the cluster that it ran on, ")
    assert {result.verdict for result in found.values()} == {Verdict.PASS}


def test_cases_are_lost_when_no_node_is_left(nodes: Nodes, shared: RayEngine) -> None:
    nodes.ensure("alpha")
    done: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Finished):
            done.append(event.result.id)
            if len(done) == 3:
                nodes.kill("alpha")

    report = outcome(numbered("slow", "clustered.py", 12), shared, _Events(on_event)).report  # type: ignore[arg-type]
    lost = [result for result in report.cases if result.verdict is Verdict.ERROR]
    assert len(report.cases) == 12
    assert 0 < len(lost) <= 9
    assert {result.message for result in lost} == {"GV905: was not run: no node with a CPU is left in the cluster"}


def test_gpu_cases_ask_for_a_gpu_and_others_occupy_none(nodes: Nodes, shared: RayEngine) -> None:
    nodes.ensure("alpha")
    nodes.add("gpus", num_gpus=2, num_cpus=0)
    tasks = [Task(key=f"cpu{number}", work=asking(), timeout=20) for number in range(4)]
    tasks += [
        Task(key=f"gpu{number}", work=asking(), timeout=20, device="cuda", resource="cuda:0") for number in (0, 1)
    ]
    tasks += [Task(key="both", work=asking(), timeout=20, device="cuda:1", resource="cuda:1")]
    answers = values_of(shared, tasks)
    assert {answers[f"cpu{number}"] for number in range(4)} == {""}
    assert {answers["gpu0"], answers["gpu1"]} <= {"0", "1"}
    assert answers["both"] in ("0,1", "1,0")


def asking() -> FunctionCall:
    return FunctionCall(function=f"{__name__}:visible_gpus", argument=None)


def visible_gpus(_: None) -> str | None:
    """Run in a worker: return the GPUs that it sees."""
    import os

    return os.environ.get("CUDA_VISIBLE_DEVICES")


def values_of(engine: Engine, tasks: list[Task]) -> dict[str, object]:
    for task in tasks:
        engine.submit(task)
    answers: dict[str, object] = {}
    while (event := engine.next_event()) is not None:
        if isinstance(event, TaskDone):
            assert isinstance(event.answer, FunctionResult)
            answers[event.key] = event.answer.value
    return answers


def test_a_node_with_another_torch_is_refused_and_nothing_is_left(free: Nodes, tmp_path: Path) -> None:
    folder = tmp_path / "torch-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    free.ensure()
    free.add("odd", env_vars={"PYTHONPATH": str(tmp_path)})
    engine = RayEngine(workers=None, address=free.address)
    try:
        with pytest.raises(ServerError, match=r"--engine ray: node odd has torch 9\.9, this machine has 2\."):
            run([case("Square")], engine)
    finally:
        engine.close()
    assert not free.left_of_ours()


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


def test_an_address_at_which_nothing_answers() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    engine = RayEngine(workers=None, address="127.0.0.1:9")
    try:
        with pytest.raises(ServerError, match=r"--ray-address 127\.0\.0\.1:9: no Ray cluster answers there; start one"):
            run([case("Square")], engine)
    finally:
        engine.close()


def test_ray_that_is_started_for_a_run_ends_with_it() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    before = set(offspring(os.getpid()))
    engine = RayEngine(workers=1, address="local")
    try:
        assert run([case("Square")], engine)["Square"].verdict is Verdict.PASS
        started = set(offspring(os.getpid())) - before
        assert any("raylet" in command_of(process) for process in started)
    finally:
        engine.close()
    assert not left_over(started)
