"""The tables of `benchmarks.cluster`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.plain_table import table
from benchmarks.record import Row, Standing, Total


class Process(StrEnum):
    """The processes whose processor time is counted."""

    WORKER = "workers and their servers"
    SLOT = "slots"
    CONNECTED = "process that is connected to Ray"
    LIGHT = "light process"  # the benchmark itself
    RAY = "Ray's own processes"


# Ray's own processes are not among them: they run whether cases do or not, and also in the turn of the pool.
_OF_POOL = (Process.WORKER, Process.LIGHT)
_OF_CLUSTER = (Process.WORKER, Process.SLOT, Process.CONNECTED, Process.LIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A cluster to time."""

    title: str
    nodes: tuple[int, ...]  # CPUs of each
    kills: bool = False  # True to kill the last node when half of the cases have finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What cases took in an engine."""

    seconds: float
    cpu: Mapping[Process, float]  # seconds of processor time


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What the same cases took in the pool of this machine and in a cluster."""

    pool: Cost
    cluster: Cost

    @property
    def ratio(self) -> float:
        return self.cluster.seconds / self.pool.seconds

    @property
    def cpu(self) -> tuple[float, float]:
        """Seconds of processor time in the pool and in the cluster, without Ray's own processes."""
        return sum(self.pool.cpu[kind] for kind in _OF_POOL), sum(self.cluster.cpu[kind] for kind in _OF_CLUSTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Some cases in a setup, measured in every round."""

    setup: Setup
    title: str
    count: int  # of cases
    pairs: list[Pair]

    def median(self, value: Callable[[Pair], float]) -> float:
        return statistics.median(map(value, self.pairs))


@dataclass(slots=True, kw_only=True)
class Results:
    """What has been measured so far. The lists grow."""

    opening: list[tuple[str, float]]  # seconds until the first result
    rows: list[Measured]


def parts(results: Results) -> Iterator[str]:
    """Yield what is printed, in parts."""
    if results.rows:
        yield from _measured(results.rows)
    yield table(("until the first result", "s"), [(title, f"{seconds:.1f}") for title, seconds in results.opening])


def _measured(rows: Sequence[Measured]) -> Iterator[str]:
    yield table(("setup", "cases", "pool s", "cluster s", "ms a case", "ratio", "range"), map(_times, rows))
    yield table(("processor time", "cases", "pool s", "cluster s", "ratio"), map(_cpu_times, _without_deaths(rows)))
    yield _each_case(rows)


def _times(row: Measured) -> tuple[str, ...]:
    ratios = sorted(pair.ratio for pair in row.pairs)
    cluster = row.median(lambda pair: pair.cluster.seconds)
    return (
        row.setup.title,
        row.title,
        f"{row.median(lambda pair: pair.pool.seconds):.1f}",
        f"{cluster:.1f}",
        f"{1000 * cluster / row.count:.1f}",
        f"{row.median(lambda pair: pair.ratio):.2f}",
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
    )


def _without_deaths(rows: Sequence[Measured]) -> list[Measured]:
    """Return the rows of setups in which no node dies: with it, the count of its processor time ends."""
    return [row for row in rows if not row.setup.kills]


def _cpu_times(row: Measured) -> tuple[str, ...]:
    pool, cluster = row.median(lambda pair: pair.cpu[0]), row.median(lambda pair: pair.cpu[1])
    return row.setup.title, row.title, f"{pool:.2f}", f"{cluster:.2f}", f"{cluster / pool:.2f}"


def _slope(rows: Sequence[Measured], value: Callable[[Pair], float]) -> float | None:
    """Return how much a value grows with each small case, None if there are not two numbers of cases yet."""
    if not (rounds := _rounds(rows)):
        return None
    return statistics.median(value(more) - value(less) for less, more in rounds) / (rows[1].count - rows[0].count)


def _rounds(rows: Sequence[Measured]) -> list[tuple[Pair, Pair]]:
    """Return the pairs of fewer and of more small cases for every round, none without two numbers of cases."""
    if len(rows) < 2 or rows[0].count == rows[1].count:
        return []
    return list(zip(rows[0].pairs, rows[1].pairs, strict=True))


def _each_case(rows: Sequence[Measured]) -> str:
    """Return the table of what one more small case takes in each process, and what dispatch costs."""
    if (dispatch := _dispatch(rows)) is None:
        return ""
    shown = []
    for kind in Process:
        sides = (
            _slope(rows, lambda pair: pair.pool.cpu[kind]) if kind in _OF_POOL else None,  # noqa: B023 (called here)
            _slope(rows, lambda pair: pair.cluster.cpu[kind]),  # noqa: B023
        )
        shown.append((kind.value, *("" if side is None else f"{1000 * side:.2f}" for side in sides)))
    text = table(("one more small case", "pool ms", "cluster ms"), shown)
    return f"{text}\n\ndispatch costs {100 * dispatch:.1f} % of the processor time that a small case takes in the pool"


def _dispatch(rows: Sequence[Measured]) -> float | None:
    """Return what dispatch adds to the processor time of a small case, as a part of what it takes in the pool.

    Workers do the same in both, so the time of the other processes is measured in theirs: the machine may be faster in
    one of the two turns.
    """
    rounds = _rounds(rows)
    return statistics.median(_added(less, more) for less, more in rounds) if rounds else None


def _added(less: Pair, more: Pair) -> float:
    """Return the same for one round, from the pairs of fewer and of more cases."""
    pool, cluster = (more.cpu[side] - less.cpu[side] for side in (0, 1))
    of_pool, of_cluster = (
        after.cpu[Process.WORKER] - before.cpu[Process.WORKER]
        for before, after in ((less.pool, more.pool), (less.cluster, more.cluster))
    )
    return cluster / of_cluster / (pool / of_pool) - 1


def row_of(row: Measured) -> Row:
    return Row(
        key=f"{row.setup.title}: {row.title}",
        standing=Standing.RIGHT,
        verdict="pass",
        cost=row.median(lambda pair: pair.ratio),
        against="local pool",
    )


def totals(rows: Sequence[Measured]) -> list[Total]:
    totals = [
        Total(name=f"{row.setup.title}: {row.title}, ratio", value=row.median(lambda pair: pair.ratio)) for row in rows
    ]
    dispatch = _dispatch(rows)
    if dispatch is not None:
        totals += [Total(name="dispatch, part of a small case's processor time", value=dispatch)]
    return totals
