"""Time a Ray cluster of simulated nodes beside the pool of this machine: `python -m benchmarks.cluster [--repeat N]`.

Every setup has two CPUs in all. Cluster and pool take turns on the same cases, in engines that are open already, so
that a slow period of the machine affects both; a ratio of 1 means that the cluster costs nothing. Then the same with a
node that is killed when half of the cases have finished. Opening is timed apart.

Processor time is that of the benchmark and of the processes of gradverify that it has started. What dispatch costs is
the difference between pool and cluster in the processor time of one more small case: the slope between two numbers of
cases, since the start of a run is not dispatch. Workers do the same in both, so their time is the unit on both sides.
Needs Linux. Ctrl-C ends it with what has been measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import suite_ops
from benchmarks.cluster_tables import Cost, Measured, Pair, Process, Results, Setup, parts, row_of, totals
from benchmarks.command import parsed_options, parser_of, save
from benchmarks.simulated_nodes import ENVIRONMENT, SimulatedNodes
from gradverify.case import Case, Normal, Target, TensorInput, TorchGradcheck
from gradverify.result import Verdict
from gradverify.run.engines.open import open_engine
from gradverify.run.options import EngineName, EngineOptions, Event, Finished, RunOptions
from gradverify.run.session import run_cases
from gradverify.run.task import Engine
from tests.run.processes import offspring

_CPUS = 2
_COMMANDS = {  # what commands of processes hold
    b"gradverify.run.server": Process.WORKER,
    b"ray::Slot": Process.SLOT,
    b"engines.cluster.driver": Process.CONNECTED,
}
_LARGE = '''

def large(x):
    """Take some tenths of a second to verify: 144 outputs of 144 inputs."""
    return torch.matrix_exp(x) @ torch.linalg.inv(x @ x.mT + 3 * torch.eye(12, dtype=x.dtype))
'''


SETUPS = (
    Setup(title="1 node of 2 CPUs", nodes=(2,)),
    Setup(title="2 nodes of 1 CPU", nodes=(1, 1)),
    Setup(title="2 nodes, one killed", nodes=(1, 1), kills=True),
)


def main() -> None:
    """Measure every setup with small and with large cases, and print the tables."""
    options = _options()
    os.environ.update({**ENVIRONMENT, "PYTHONWARNINGS": "ignore"})
    results = Results(opening=[], rows=[])
    interrupted = False
    with _project():
        try:
            _measure(options, results)
        except KeyboardInterrupt:
            interrupted = True
    print("\n\n".join(part for part in parts(results) if part))
    if interrupted:
        sys.exit(f"interrupted: {len(results.rows)} of {_count_of_rows()} rows were measured")
    save("cluster", options, map(row_of, results.rows), totals(results.rows))


def _options() -> argparse.Namespace:
    parser = parser_of("Time a Ray cluster of simulated nodes beside the pool of this machine.")
    parser.add_argument("--small", type=int, default=2000, metavar="N", help="how many small cases")
    parser.add_argument("--large", type=int, default=40, metavar="N", help="how many large cases")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="rounds, of which the median counts")
    return parsed_options(parser)


def _count_of_rows() -> int:
    return sum(len(_workloads(setup, 0, 0)) for setup in SETUPS)


def _workloads(setup: Setup, small: int, large: int) -> tuple[tuple[str, list[Case]], ...]:
    """Return the cases to measure in a setup. A quarter of the small ones gives the slope of the processor time."""
    few = ((f"{small // 4:,} small", _small(small // 4)),) if setup is SETUPS[0] else ()
    return (*few, (f"{small:,} small", _small(small)), (f"{large:,} large", _large(large)))


def _measure(options: argparse.Namespace, results: Results) -> None:
    """Add to the results. Raises KeyboardInterrupt."""
    results.opening.append(("pool", _seconds_to_open()))
    with contextlib.closing(open_engine(EngineOptions(workers=_CPUS))) as pool:
        for setup in SETUPS:
            with _opened(setup) as (nodes, engine, seconds):
                results.opening.append((setup.title, seconds))
                for title, cases in _workloads(setup, options.small, options.large):
                    pairs = [_pair(setup, cases, pool, nodes, engine) for _ in range(options.repeat)]
                    row = Measured(setup=setup, title=title, count=len(cases), pairs=pairs)
                    results.rows.append(row)
                    print(f"{setup.title}, {title}: {row.median(lambda pair: pair.ratio):.2f}", file=sys.stderr)


@contextlib.contextmanager
def _project() -> Iterator[None]:
    """Work in a project of its own until the block ends."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text("")
        text = Path(suite_ops.__file__).read_text(encoding="utf-8")
        (Path(folder) / "ops.py").write_text(text + _LARGE, encoding="utf-8")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _small(count: int) -> list[Case]:
    names = suite_ops.NAMES
    return [
        replace(case, target=replace(case.target, name=names[number % len(names)]))
        for number, case in enumerate(_cases("small", count, (3,)))
    ]


def _large(count: int) -> list[Case]:
    return _cases("large", count, (12, 12))


def _cases(name: str, count: int, shape: tuple[int, ...]) -> list[Case]:
    target = Target(file=str(Path("ops.py").resolve()), name=name, written=f"ops.py:{name}")
    return [
        Case(
            id=f"benchmark/{name}{number}/cpu-float64",
            draw_key=f"benchmark/{name}{number}",
            spec="benchmark.yaml",
            line=1,
            target=target,
            inputs={"x": TensorInput(origin=Normal(), shape=shape)},
            checks=("gradcheck", "gradgradcheck") if name == "small" else ("gradcheck",),
            torch_gradcheck=TorchGradcheck.NEVER,
        )
        for number in range(count)
    ]


def _pair(setup: Setup, cases: list[Case], pool: Engine, nodes: SimulatedNodes, engine: Engine) -> Pair:
    _start(setup, nodes)
    for each in (pool, engine):  # afterwards every slot and worker has run cases
        _cost(each, _large(2 * _CPUS))
    # First the cluster: it takes slots back that had nothing to do for a minute.
    in_cluster = _cost(engine, cases, (lambda: nodes.kill(_name(len(setup.nodes)))) if setup.kills else _nothing)
    return Pair(cluster=in_cluster, pool=_cost(pool, cases))


def _start(setup: Setup, nodes: SimulatedNodes) -> None:
    """Start the nodes of a setup that are not there."""
    for number, cpus in enumerate(setup.nodes, 1):
        if _name(number) not in nodes.there:
            nodes.add(_name(number), num_cpus=cpus)


def _name(number: int) -> str:
    return f"node-{number}"


@contextlib.contextmanager
def _opened(setup: Setup) -> Iterator[tuple[SimulatedNodes, Engine, float]]:
    """Yield a cluster, an engine of it, and the seconds until it had a first result."""
    nodes = SimulatedNodes()
    try:
        _start(setup, nodes)
        started = time.perf_counter()
        options = EngineOptions(name=EngineName.RAY, address=nodes.address)
        with contextlib.closing(open_engine(options)) as engine:
            _cost(engine, _cases("Square", 1, (3,)))
            yield nodes, engine, time.perf_counter() - started
    finally:
        nodes.close()


def _seconds_to_open() -> float:
    started = time.perf_counter()
    with contextlib.closing(open_engine(EngineOptions(workers=_CPUS))) as engine:
        _cost(engine, _cases("Square", 1, (3,)))
        return time.perf_counter() - started


def _nothing() -> None:
    """Do nothing when half of the cases have finished."""


def _cost(engine: Engine, cases: Sequence[Case], on_half: Callable[[], None] = _nothing) -> Cost:
    """Return what an engine takes for cases. Raises KeyboardInterrupt, and AssertionError unless every case passes."""
    done = 0

    def on_event(event: Event) -> None:
        nonlocal done
        if isinstance(event, Finished):
            done += 1
            if done == len(cases) // 2:
                on_half()

    started, before = time.perf_counter(), _cpu_seconds()
    outcome = run_cases(cases, (), RunOptions(), on_event, engine=engine)
    seconds, after = time.perf_counter() - started, _cpu_seconds()
    cost = Cost(seconds=seconds, cpu={kind: after[kind] - before[kind] for kind in Process})
    if outcome.interrupted:
        raise KeyboardInterrupt
    found = outcome.report.cases
    assert [result.id for result in found] == [case.id for case in cases]
    odd = [f"{result.id}: {result.verdict}: {result.message}" for result in found if result.verdict is not Verdict.PASS]
    assert not odd, f"{len(odd):,} cases did not pass; {odd[0]}"
    return cost


def _cpu_seconds() -> dict[Process, float]:
    """Return the seconds of processor time that each kind of process has taken, and the children it waited for."""
    ticks = dict.fromkeys(Process, 0)
    for process in (os.getpid(), *offspring(os.getpid())):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            kind = next((kind for part, kind in _COMMANDS.items() if part in command), Process.RAY)
            kind = Process.LIGHT if process == os.getpid() else kind
            ticks[kind] += sum(map(int, fields.split()[11:15]))
    per_second = os.sysconf("SC_CLK_TCK")
    return {kind: count / per_second for kind, count in ticks.items()}


if __name__ == "__main__":
    main()
