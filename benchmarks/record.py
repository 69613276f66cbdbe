"""Benchmark results as JSON for `benchmarks.compare`: one row per judged case, and totals."""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from gradverify.result import CheckResult, Verdict
from gradverify.serial import from_plain, to_plain


class Standing(StrEnum):
    """How good a verdict is, best first."""

    RIGHT = "right"
    BELOW_LIMIT = "below limit"  # a planted fault passes, and is below the detection limit
    WRONG_CAUSE = "wrong cause"  # a planted fault fails, and no cause or a wrong one is named
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    FALSE_ALARM = "false alarm"  # a right function fails
    MISSED = "missed"  # something wrong passes, or fails without naming the wrong entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One judged case."""

    key: str  # unique within a run, and the same in every run with the same options
    standing: Standing
    verdict: str
    codes: tuple[str, ...] = ()  # of the findings, sorted, each once
    cause: str | None = None  # the causes named, sorted and joined by commas
    mismatched: int = 0  # entries
    kinks: int = 0  # entries
    undetermined: int = 0  # entries
    note: str = ""  # one line for a reader; not compared
    cost: float | None = None  # time relative to `against`; None if no time was measured
    against: str | None = None  # the reference for the time
    forward: int | None = None  # evaluations, if the benchmark measures cost
    backward: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One number of the benchmark's summary."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One command line option or version; runs are comparable only if these are equal."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one benchmark."""

    benchmark: str
    options: tuple[Setting, ...]
    versions: tuple[Setting, ...]
    rows: tuple[Row, ...]
    totals: tuple[Total, ...]


def judged_row(key: str, result: CheckResult, standing: Standing, note: str = "") -> Row:
    """Return the row of one check's result; `note` is by default the first line of its message."""
    causes = sorted({finding.cause for finding in result.findings if finding.cause is not None})
    return Row(
        key=key,
        standing=standing,
        verdict=result.verdict.value,
        codes=tuple(sorted({finding.code for finding in result.findings})),
        cause=", ".join(causes) or None,
        mismatched=result.mismatched,
        kinks=result.kinks,
        undetermined=result.undetermined,
        note=note or _first_line(result),
    )


def with_evaluations(row: Row, result: CheckResult) -> Row:
    """Return the row with the numbers of evaluations that its verdict took."""
    return replace(row, forward=result.evaluations.forward, backward=result.evaluations.backward)


def standing_of_right(verdict: Verdict) -> Standing:
    """Return the standing of a verdict on a right function."""
    if verdict is Verdict.FAIL:
        return Standing.FALSE_ALARM
    if verdict is Verdict.INCONCLUSIVE:
        return Standing.INCONCLUSIVE
    return Standing.ERROR if verdict is Verdict.ERROR else Standing.RIGHT


def standing_totals(rows: Iterable[Row]) -> Iterator[Total]:
    """Yield the number of rows, in all and of each standing."""
    count = Counter(row.standing for row in rows)
    yield Total(name="rows", value=count.total())
    yield from (Total(name=standing.value, value=count[standing]) for standing in Standing)


def run_of(benchmark: str, options: Mapping[str, object], rows: Iterable[Row], totals: Iterable[Total] = ()) -> Run:
    """Return the run with the installed versions; the standings' counts come before the given totals."""
    found = tuple(_numbered(rows))
    return Run(
        benchmark=benchmark,
        options=tuple(Setting(name=name, value=str(value)) for name, value in sorted(options.items())),
        versions=tuple(_versions()),
        rows=found,
        totals=(*standing_totals(found), *totals),
    )


def write_run(path: Path, run: Run) -> None:
    """Write the run as JSON."""
    path.write_text(json.dumps(to_plain(run), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_run(path: Path) -> Run:
    """Return the run that the file holds; raises OSError, ValueError (no JSON) or ReportError (other JSON)."""
    return from_plain(Run, json.loads(path.read_text(encoding="utf-8")))


def _numbered(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows; repeated keys get a suffix #2, #3 and so on."""
    seen: Counter[str] = Counter()
    for row in rows:
        seen[row.key] += 1
        yield row if seen[row.key] == 1 else replace(row, key=f"{row.key} #{seen[row.key]}")


def _versions() -> Iterator[Setting]:
    yield Setting(name="python", value=platform.python_version())
    yield from (Setting(name=name, value=version(name)) for name in ("gradverify", "torch", "numpy"))
    yield Setting(name="platform", value=f"{sys.platform} {platform.machine()}")


def _first_line(result: CheckResult) -> str:
    if result.verdict is Verdict.PASS:
        return ""
    text = result.findings[0].message if result.findings else result.message
    return text.partition("\n")[0]
