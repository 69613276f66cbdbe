"""Nodes of a Ray cluster that die, and one that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gradverify.result import Verdict
from gradverify.run.engines.cluster.engine import RayEngine
from gradverify.run.options import Event, Finished, Noted, Started
from gradverify.run.start_server import ServerError
from tests.run.cluster.conftest import Nodes
from tests.run.cluster.making import case, numbered
from tests.run.making import outcome, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]  # one process starts the cluster


def test_a_node_that_dies_half_way_costs_nothing(doomed: Nodes, ray_engine: RayEngine) -> None:
    doomed.ensure("alpha", "beta")
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
                doomed.kill("beta")

    events = _Events(on_event)
    report = outcome(cases, ray_engine, events).report  # type: ignore[arg-type]
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


def test_a_case_that_takes_down_two_nodes_is_the_culprit(doomed: Nodes, ray_engine: RayEngine) -> None:
    doomed.ensure("alpha", "beta", "gamma")
    cases = [*numbered("Square", "good.py", 6), case("kill_node", "clustered.py"), *numbered("slow", "clustered.py", 6)]
    found = run(cases, ray_engine)
    blamed = found.pop("kill_node")
    assert {result.verdict for result in found.values()} == {Verdict.PASS}
    assert len(found) == 12
    assert blamed.verdict is Verdict.ERROR
    assert blamed.message.startswith("GV905: took down 2 nodes of the cluster that it ran on, ")
    assert "Run it alone with --engine local to see what it does" in blamed.message


def only_node(nodes: Nodes) -> str:
    """Let the cluster have one node, if possible one that is there already, and return its name."""
    name = next(iter(nodes.alive()), "alpha")
    nodes.ensure(name)
    return name


def test_a_case_that_ends_rays_process_twice_is_the_culprit(doomed: Nodes, ray_engine: RayEngine) -> None:
    only_node(doomed)
    found = run([case("kill_slot", "clustered.py"), *numbered("Square", "good.py", 6)], ray_engine)
    assert found.pop("kill_slot").message.startswith("GV905: took down 2 nodes of the cluster that it ran on, ")
    assert {result.verdict for result in found.values()} == {Verdict.PASS}


def test_cases_are_lost_when_no_node_is_left(doomed: Nodes, ray_engine: RayEngine) -> None:
    last = only_node(doomed)
    done: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Finished):
            done.append(event.result.id)
            if len(done) == 3:
                doomed.kill(last)

    events = _Events(on_event)
    report = outcome(numbered("slow", "clustered.py", 12), ray_engine, events).report  # type: ignore[arg-type]
    lost = [result for result in report.cases if result.verdict is Verdict.ERROR]
    assert len(report.cases) == 12
    assert 0 < len(lost) <= 9
    assert {result.message for result in lost} == {"GV905: was not run: no node with a CPU is left in the cluster"}


def test_a_node_with_another_torch_is_refused_and_nothing_is_left(
    doomed: Nodes, ray_engine: RayEngine, tmp_path: Path
) -> None:
    folder = tmp_path / "torch-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    ray_engine.close()
    doomed.ensure()
    doomed.add("odd", env_vars={"PYTHONPATH": str(tmp_path)})
    engine = RayEngine(workers=None, address=doomed.address)
    try:
        with pytest.raises(ServerError, match=r"--engine ray: node odd has torch 9\.9, this machine has 2\."):
            run([case("Square")], engine)
    finally:
        engine.close()
    assert not doomed.left_of_ours()
