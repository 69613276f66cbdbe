"""The baseline file of `run` and `merge`: read before the run, applied to the report and written after it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path

from gradverify.baseline.model import NOTHING_KNOWN, Baseline, Entry, described
from gradverify.catalogue import sections
from gradverify.cli.exits import UsageProblem
from gradverify.cli.options import BaselineFiles
from gradverify.cli.outputs import Destinations
from gradverify.cli.request import one_of_two
from gradverify.cli.terminal import print_problems
from gradverify.report.words import counted
from gradverify.result import Report
from gradverify.spec.save import write_whole

_MAX_NOTES = 10  # stale entries that are printed


class Use(StrEnum):
    """How the file is used."""

    NONE = "none"
    READ = "read"
    WRITE = "write"  # after reading its present entries


class Extent(StrEnum):
    """How much of a run was done."""

    WHOLE = "whole"
    PART = "part"  # the run was interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBaseline:
    """A baseline and its file."""

    use: Use = Use.NONE
    path: Path = Path()
    baseline: Baseline = NOTHING_KNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A report with the baseline applied."""

    report: Report
    notes: tuple[str, ...] = ()  # for the user
    lost: tuple[str, ...] = ()  # messages about files that could not be written


def open_baseline(files: BaselineFiles, default: Path | None = None) -> OpenBaseline:
    """Return the baseline named by the options or the project. Prints mistakes in it and raises UsageProblem."""
    write = files.write_baseline
    one_of_two(("--baseline", files.baseline is not None), ("--write-baseline", write is not None))
    if write is not None:
        return OpenBaseline(use=Use.WRITE, path=write, baseline=_read(write) if write.exists() else NOTHING_KNOWN)
    path = files.baseline or default
    return OpenBaseline() if path is None else OpenBaseline(use=Use.READ, path=path, baseline=_read(path))


def refuse_overlap(kept: OpenBaseline, destinations: Destinations) -> None:
    """Raise UsageProblem if a report would overwrite the baseline."""
    for name, path in destinations.items():
        if path is not None and kept.use is not Use.NONE and path.resolve() == kept.path.resolve():
            raise UsageProblem(f"--{name} would overwrite the baseline {kept.path}")


def apply_baseline(report: Report, kept: OpenBaseline, extent: Extent) -> Judged:
    """Return the report with the baseline applied; writes the updated baseline with --write-baseline."""
    from gradverify.baseline.apply import (
        baseline_on,
        fixed_entries,
        report_with_baseline,
        shrunk_entries,
        updated_baseline,
    )

    if kept.use is Use.NONE:
        return Judged(report=report)
    today = date.today()
    if kept.use is Use.READ or extent is Extent.PART:
        stale_notes = _stale_notes(
            fixed_entries(report, kept.baseline), shrunk_entries(report, kept.baseline), kept.path
        )
        notes = [*_unwritten_note(kept), *stale_notes]
        return Judged(report=report_with_baseline(report, baseline_on(kept.baseline, today)), notes=tuple(notes))
    updated = updated_baseline(report, kept.baseline)
    after = report_with_baseline(report, baseline_on(updated, today))
    lost = _write(updated, kept.path)
    return Judged(report=after, notes=() if lost else (_written_note(kept, updated),), lost=lost)


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


def _written_note(kept: OpenBaseline, updated: Baseline) -> str:
    before, after = ({entry.key: entry for entry in baseline.entries} for baseline in (kept.baseline, updated))
    new, gone = after.keys() - before.keys(), before.keys() - after.keys()
    changed = [key for key in after.keys() & before.keys() if after[key] != before[key]]
    changes = [f"{len(keys):,} {word}" for keys, word in ((new, "new"), (changed, "changed"), (gone, "fixed")) if keys]
    lines = f" ({', '.join(changes)})" if changes else ""
    hint = "; say why in `reason`" if new else ""
    return f"{kept.path} knows {counted(len(after), 'finding')} now{lines}{hint}"


def _stale_notes(gone: Sequence[Entry], fewer: Sequence[tuple[Entry, int]], path: Path) -> Iterator[str]:
    lines = [f"fixed: {entry.case} {described(entry)}; its entry in {path} can go" for entry in gone]
    lines += [
        f"fewer: {entry.case} {described(entry)}: {counted(total, 'entry', 'entries')}, known are {entry.total:,};"
        f" `total` in {path} can be lowered"
        for entry, total in fewer
    ]
    yield from lines[:_MAX_NOTES]
    rest = len(lines) - _MAX_NOTES
    if rest > 0:
        yield f"and {rest:,} more; --write-baseline {shlex.quote(str(path))} brings them up to date"


def _unwritten_note(kept: OpenBaseline) -> Iterator[str]:
    if kept.use is Use.WRITE:
        yield f"{kept.path} was not written: the run was interrupted"
