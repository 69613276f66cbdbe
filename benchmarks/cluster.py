"""Time a Ray cluster of simulated nodes beside the pool of this machine: `python -m benchmarks.cluster [--repeat N]`.

Every setup has two CPUs in all. Pool and cluster take turns on the same cases, in engines that are open already, so
that a slow period of the machine affects both; a ratio of 1 means that the cluster costs nothing. Then the same with a
node that is killed when half of the cases have finished. Opening is timed apart.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import suite_ops
from benchmarks.command import parsed_options, parser_of, save
from benchmarks.plain_table import table
from benchmarks.record import Row, Standing, Total
from gradverify.case import Case, Normal, Target, TensorInput, TorchGradcheck
from gradverify.result import Verdict
from gradverify.run.engines.open import open_engine
from gradverify.run.options import EngineName, EngineOptions, Event, Finished, RunOptions
from gradverify.run.session import run_cases
from gradverify.run.task import Engine

_CPUS = 2
_LARGE = '''

def large(x):
    """Take about half a second to verify: 256 outputs of 256 inputs."""
    return torch.matrix_exp(x) @ torch.linalg.inv(x @ x.mT + 3 * torch.eye(16, dtype=x.dtype))
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A cluster to time."""

    title: str
    nodes: tuple[int, ...]  # CPUs of each
    kills: bool = False  # True to kill the last node when half of the cases have finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The seconds that the same cases took in the pool of this machine and in a cluster."""

    pool: float
    cluster: float


SETUPS = (
    Setup(title="1 node of 2 CPUs", nodes=(2,)),
    Setup(title="2 nodes of 1 CPU", nodes=(1, 1)),
    Setup(title="2 nodes, one killed", nodes=(1, 1), kills=True),
)


class Nodes:
    """A simulated cluster, whose head runs no cases. Each node unpacks the project below a folder of its own."""

    def __init__(self, cpus: Sequence[int]) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": {"health_check_period_ms": 500}}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self._cpus = cpus
        self._folders: list[str] = []
        self._nodes: list[Any] = []
        self.restore()

    def restore(self) -> None:
        """Start the nodes that are not there."""
        for number, count in enumerate(self._cpus[len(self._nodes) :], len(self._nodes) + 1):
            self._folders.append(tempfile.mkdtemp(prefix="gv", dir="/tmp"))
            settings = {"node_name": f"node-{number}", "num_cpus": count, "temp_dir": self._folders[-1]}
            self._nodes.append(self.cluster.add_node(**settings))

    def kill_last(self) -> None:
        """Kill the last node as a power failure would."""
        self.cluster.remove_node(self._nodes.pop(), allow_graceful=False)

    def close(self) -> None:
        """Kill every node."""
        for node in (*self._nodes, self.cluster.head_node):
            self.cluster.remove_node(node, allow_graceful=False)
        self.cluster.shutdown()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Time every setup with small and with large cases, and print the tables."""
    options = _options()
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "PYTHONWARNINGS": "ignore"})
    with _project():
        workloads = {
            f"{options.small:,} small": _small(options.small),
            f"{options.large:,} large": _cases("large", options.large, (16, 16)),
        }
        rows: list[tuple[str, str, list[Pair]]] = []
        opening = [("pool", _seconds_to_open())]
        with contextlib.closing(open_engine(EngineOptions(workers=_CPUS))) as pool:
            for setup in SETUPS:
                with _opened(setup) as (nodes, engine, seconds):
                    opening.append((setup.title, seconds))
                    for title, cases in workloads.items():
                        pairs = [_pair(setup, cases, pool, nodes, engine) for _ in range(options.repeat)]
                        rows.append((setup.title, title, pairs))
                        print(f"{setup.title}, {title}: {_median(pairs):.2f}", file=sys.stderr, flush=True)
    print(_table(rows, workloads))
    print()
    print(table(("until the first result", "s"), [(title, f"{seconds:.1f}") for title, seconds in opening]))
    save("cluster", options, [_row(*row) for row in rows], _totals(rows))


def _options() -> argparse.Namespace:
    parser = parser_of("Time a Ray cluster of simulated nodes beside the pool of this machine.")
    parser.add_argument("--small", type=int, default=2000, metavar="N", help="how many small cases")
    parser.add_argument("--large", type=int, default=40, metavar="N", help="how many large cases")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="rounds, of which the median counts")
    return parsed_options(parser)


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


def _pair(setup: Setup, cases: list[Case], pool: Engine, nodes: Nodes, engine: Engine) -> Pair:
    nodes.restore()
    for each in (engine, pool):  # afterwards every slot and worker has run cases
        _seconds(each, _cases("large", 2 * _CPUS, (16, 16)), _nothing)
    in_pool = _seconds(pool, cases, _nothing)
    return Pair(pool=in_pool, cluster=_seconds(engine, cases, nodes.kill_last if setup.kills else _nothing))


@contextlib.contextmanager
def _opened(setup: Setup) -> Iterator[tuple[Nodes, Engine, float]]:
    """Yield a cluster, an engine of it, and the seconds until it had a first result."""
    nodes = Nodes(setup.nodes)
    options = EngineOptions(name=EngineName.RAY, address=nodes.cluster.address)
    started = time.perf_counter()
    try:
        with contextlib.closing(open_engine(options)) as engine:
            _seconds(engine, _cases("Square", 1, (3,)), _nothing)
            yield nodes, engine, time.perf_counter() - started
    finally:
        nodes.close()


def _seconds_to_open() -> float:
    started = time.perf_counter()
    with contextlib.closing(open_engine(EngineOptions(workers=_CPUS))) as engine:
        _seconds(engine, _cases("Square", 1, (3,)), _nothing)
        return time.perf_counter() - started


def _nothing() -> None:
    """Do nothing when half of the cases have finished."""


def _seconds(engine: Engine, cases: Sequence[Case], on_half: Callable[[], None]) -> float:
    """Return how long an engine takes for cases, all of which must pass."""
    done = 0

    def on_event(event: Event) -> None:
        nonlocal done
        if isinstance(event, Finished):
            done += 1
            if done == len(cases) // 2:
                on_half()

    started = time.perf_counter()
    report = run_cases(cases, (), RunOptions(), on_event, engine=engine).report
    seconds = time.perf_counter() - started
    assert [result.id for result in report.cases] == [case.id for case in cases]
    assert {result.verdict for result in report.cases} == {Verdict.PASS}, report.cases[0].message
    return seconds


def _median(pairs: Sequence[Pair]) -> float:
    return statistics.median(pair.cluster / pair.pool for pair in pairs)


def _table(rows: Sequence[tuple[str, str, list[Pair]]], workloads: dict[str, list[Case]]) -> str:
    shown = []
    for setup, title, pairs in rows:
        ratios = sorted(pair.cluster / pair.pool for pair in pairs)
        pool, cluster = (statistics.median(getattr(pair, name) for pair in pairs) for name in ("pool", "cluster"))
        milliseconds = 1000 * cluster / len(workloads[title])
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        shown.append(
            (setup, title, f"{pool:.1f}", f"{cluster:.1f}", f"{milliseconds:.1f}", f"{_median(pairs):.2f}", spread)
        )
    return table(("setup", "cases", "pool s", "cluster s", "ms a case", "ratio", "range"), shown)


def _row(setup: str, title: str, pairs: Sequence[Pair]) -> Row:
    return Row(
        key=f"{setup}: {title}", standing=Standing.RIGHT, verdict="pass", cost=_median(pairs), against="local pool"
    )


def _totals(rows: Sequence[tuple[str, str, list[Pair]]]) -> list[Total]:
    return [Total(name=f"{setup}: {title}, ratio", value=_median(pairs)) for setup, title, pairs in rows]


if __name__ == "__main__":
    main()
