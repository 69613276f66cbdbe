"""Goals for the benchmark `kernels`, and whether a run meets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.plain_table import table
from benchmarks.record import Row, Standing

MOST_EVALUATIONS = 10  # forwards, and backwards, of a right kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One number of a run, and the most that it may be."""

    name: str
    value: int
    most: int

    @property
    def met(self) -> bool:
        return self.value <= self.most


def goals(right: Sequence[Row], to_find: Sequence[Row]) -> Iterator[Goal]:
    """Yield the goals for the rows of right kernels, and of the mistakes that have to be found.

    A mistake is found if the check fails: a verdict that is inconclusive, or an error, does not count.
    """
    yield Goal(name="false alarms", value=_count(right, Standing.FALSE_ALARM), most=0)
    yield Goal(name="right kernels without a verdict", value=_others(right), most=0)
    yield Goal(name="mistakes not found", value=len(to_find) - _count(to_find, Standing.RIGHT), most=0)
    yield Goal(name="most forwards", value=max((row.forward or 0 for row in right), default=0), most=MOST_EVALUATIONS)
    yield Goal(name="most backwards", value=max((row.backward or 0 for row in right), default=0), most=MOST_EVALUATIONS)


def goals_table(found: Sequence[Goal]) -> str:
    rows = [(each.name, str(each.value), f"≤ {each.most}", "met" if each.met else "not met") for each in found]
    return table(("goal", "value", "at most", ""), rows)


def _others(right: Sequence[Row]) -> int:
    return len(right) - _count(right, Standing.RIGHT) - _count(right, Standing.FALSE_ALARM)


def _count(rows: Sequence[Row], standing: Standing) -> int:
    return sum(row.standing is standing for row in rows)
