"""The baseline that `run` and `merge` are given: read before anything runs, applied and written when all is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path

from gradverify.baseline.model import NOTHING_KNOWN, Baseline, Entry, described
from gradverify.catalogue import sections
from gradverify.cli.exits import UsageProblem
from gradverify.cli.files import write_whole
from gradverify.cli.options import BaselineFiles
from gradverify.cli.outputs import Destinations
from gradverify.cli.request import one_of_two
from gradverify.cli.terminal import print_problems
from gradverify.report.words import counted
from gradverify.result import Report

_MOST = 10  # entries that are named


class Use(StrEnum):
    """What is done with the file."""

    NONE = "none"
    READ = "read"
    WRITE = "write"  # after reading what it held before


class Extent(StrEnum):
    """How much of a run there is."""

    WHOLE = "whole"
    PART = "part"  # it was interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A baseline and its file."""

    use: Use = Use.NONE
    path: Path = Path()
    baseline: Baseline = NOTHING_KNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A report after the baseline had its say."""

    report: Report
    notes: tuple[str, ...] = ()  # for the user
    lost: tuple[str, ...] = ()  # what could not be written


def kept_failures(files: BaselineFiles, default: Path | None = None) -> Kept:
    """Return the baseline that options or the project name; prints mistakes in it, raises UsageProblem."""
    write = files.write_baseline
    one_of_two(("--baseline", files.baseline is not None), ("--write-baseline", write is not None))
    if write is not None:
        return Kept(use=Use.WRITE, path=write, baseline=_read(write) if write.exists() else NOTHING_KNOWN)
    path = files.baseline or default
    return Kept() if path is None else Kept(use=Use.READ, path=path, baseline=_read(path))


def refuse_overlap(kept: Kept, destinations: Destinations) -> None:
    """Raise UsageProblem when a report would be written over the baseline."""
    for name, path in destinations.items():
        if path is not None and kept.use is not Use.NONE and path.resolve() == kept.path.resolve():
            raise UsageProblem(f"--{name} would overwrite the baseline {kept.path}")


def settle(report: Report, kept: Kept, extent: Extent) -> Settled:
    """Write the baseline where that was asked for, and judge the report by it."""
    from gradverify.baseline.apply import fixed, judge_of, judged_report, renewed, smaller

    if kept.use is Use.NONE:
        return Settled(report=report)
    today = date.today()
    if kept.use is Use.READ or extent is Extent.PART:
        stale = _told_stale(fixed(report, kept.baseline), smaller(report, kept.baseline), kept.path)
        notes = [*_unwritten(kept), *stale]
        return Settled(report=judged_report(report, judge_of(kept.baseline, today)), notes=tuple(notes))
    made = renewed(report, kept.baseline)
    after = judged_report(report, judge_of(made, today))
    lost = _write(made, kept.path)
    return Settled(report=after, notes=() if lost else (_told_written(kept, made),), lost=lost)


def _read(path: Path) -> Baseline:
    from gradverify.baseline.read import read_baseline

    codes = [section.name for section in sections() if section.name.startswith("GV")]
    reading = read_baseline(path, codes)
    if reading.errors:
        print_problems(reading.errors)
        raise UsageProblem(f"{counted(len(reading.errors), 'mistake')} in the baseline {path}, nothing was run")
    return reading.baseline


def _write(baseline: Baseline, path: Path) -> tuple[str, ...]:
    from gradverify.baseline.write import to_yaml

    try:
        write_whole(path, to_yaml(baseline))
    except OSError as error:
        return (f"could not write {path}: {error.strerror or error}",)
    return ()


def _told_written(kept: Kept, made: Baseline) -> str:
    before, after = ({entry.key: entry for entry in baseline.entries} for baseline in (kept.baseline, made))
    new, gone = after.keys() - before.keys(), before.keys() - after.keys()
    changed = [key for key in after.keys() & before.keys() if after[key] != before[key]]
    changes = [f"{len(keys):,} {word}" for keys, word in ((new, "new"), (changed, "changed"), (gone, "fixed")) if keys]
    told = f" ({', '.join(changes)})" if changes else ""
    hint = "; say why in `reason`" if new else ""
    return f"{kept.path} knows {counted(len(after), 'finding')} now{told}{hint}"


def _told_stale(gone: Sequence[Entry], fewer: Sequence[tuple[Entry, int]], path: Path) -> Iterator[str]:
    told = [f"fixed: {entry.case} {described(entry)}; its entry in {path} can go" for entry in gone]
    told += [
        f"fewer: {entry.case} {described(entry)}: {counted(total, 'entry', 'entries')}, known are {entry.total:,};"
        f" `total` in {path} can be lowered"
        for entry, total in fewer
    ]
    yield from told[:_MOST]
    rest = len(told) - _MOST
    if rest > 0:
        yield f"and {rest:,} more; --write-baseline {path} brings them up to date"


def _unwritten(kept: Kept) -> Iterator[str]:
    if kept.use is Use.WRITE:
        yield f"{kept.path} was not written: the run was interrupted"
