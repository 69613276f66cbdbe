"""The shards of one run that its reports are of, and what a report lacks: shards, and cases that an interrupt cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gradverify.report.words import counted
from gradverify.result import Report, Shard, Stop

MOST_SHARDS = 999_999
_MOST_NAMED = 5


def missing_shards(reports: Sequence[Report]) -> tuple[Shard, ...]:
    """Return the shards that are missing of those that these reports belong to.

    Several runs may be divided alike, as for two devices: each shard has to be there as often as any other.
    """
    found = Counter(shard for report in reports for shard in _held(report))
    missing: list[Shard] = []
    for count in sorted({shard.of for shard in found}):
        every = _every(count)
        most = max(found[shard] for shard in every)
        missing += [shard for shard in every if found[shard] < most]
    return tuple(missing)


def missing_text(report: Report) -> str:
    """Return which shards a report lacks, and how many cases for an interrupt; "" where it is whole."""
    interrupted = sum(case.why is Stop.INTERRUPT for case in report.not_run)
    cases = f"{counted(interrupted, 'case')} not run (interrupted)" if interrupted else ""
    return "; ".join(filter(None, (_shards_text([str(shard) for shard in report.missing_shards]), cases)))


def _shards_text(names: Sequence[str]) -> str:
    if not names:
        return ""
    if len(names) == 1:
        return f"shard {names[0]} is missing"
    first = [*names[:_MOST_NAMED]]
    last = first.pop() if len(names) <= _MOST_NAMED else f"{len(names) - _MOST_NAMED:,} more"
    return f"shards {', '.join(first)} and {last} are missing"


def _held(report: Report) -> Iterator[Shard]:
    """Yield the shards that a report is of; one that was merged without some is of all others."""
    if report.shard is not None:
        yield report.shard
    for count in {shard.of for shard in report.missing_shards}:
        yield from (shard for shard in _every(count) if shard not in report.missing_shards)


def _every(count: int) -> tuple[Shard, ...]:
    return tuple(Shard(index=index, of=count) for index in range(1, count + 1))
