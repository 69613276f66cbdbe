"""Print what changed between two runs of one benchmark: `python -m benchmarks.compare BEFORE.json AFTER.json`.

The benchmarks write the files with `--json`. Changes for the worse come first. The exit code is 1 if there is any, 0 if
there is none, and 2 if the files cannot be compared.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.plain_table import table
from benchmarks.record import Row, Run, Setting, Standing, read_run
from gradverify.serial import ReportError

SLOWER = 1.1  # times the cost before: a row above this is slower
_COUNTS = ("mismatched", "kinks", "undetermined", "forward", "backward")  # fields of a row that are compared
_SHOWN = 20  # printed changes per kind that is no worse, without --all


class Kind(StrEnum):
    """Kinds of change of a row, worst first."""

    NEW_MISS = "new miss"
    NEW_FALSE_ALARM = "new false alarm"
    NEW_ERROR = "new error"
    NEW_INCONCLUSIVE = "new inconclusive"
    LOST_CAUSE = "lost cause"
    BELOW_LIMIT = "no longer found"  # the planted fault is now below the detection limit
    SLOWER = "slower"
    BETTER = "better"
    OTHER = "otherwise changed"  # verdict, codes, cause or counts differ and are equally good


WORSE = tuple(Kind)[: tuple(Kind).index(Kind.BETTER)]
_WORSENED = {
    Standing.MISSED: Kind.NEW_MISS,
    Standing.FALSE_ALARM: Kind.NEW_FALSE_ALARM,
    Standing.ERROR: Kind.NEW_ERROR,
    Standing.INCONCLUSIVE: Kind.NEW_INCONCLUSIVE,
    Standing.WRONG_CAUSE: Kind.LOST_CAUSE,
    Standing.BELOW_LIMIT: Kind.BELOW_LIMIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row that differs."""

    kind: Kind
    key: str
    text: str  # before and after, one line


def main() -> None:
    """Compare the two files given on the command line, print the changes and exit with 0, 1 or 2."""
    options = _options()
    before, after = _read(options.before), _read(options.after)
    if before.benchmark != after.benchmark:
        sys.exit(
            _not_comparable(f"{options.before} is a run of {before.benchmark}, {options.after} of {after.benchmark}")
        )
    found = changes(before, after)
    lines = [*differences(before, after), *change_lines(found, shown=len(found) if options.all else _SHOWN)]
    print(*lines, totals_table(before, after), verdict_line(found), sep="\n")
    sys.exit(1 if is_worse(found) else 0)


def changes(before: Run, after: Run) -> list[Change]:
    """Return every row that changed, worst first; a row of `after` alone counts only if missed or a false alarm."""
    old = {row.key: row for row in before.rows}
    found = [change for row in after.rows for change in _changes(old.get(row.key), row)]
    return sorted(found, key=lambda change: tuple(Kind).index(change.kind))


def is_worse(found: Sequence[Change]) -> bool:
    """Return True if any change is for the worse."""
    return any(change.kind in WORSE for change in found)


def differences(before: Run, after: Run) -> list[str]:
    """Return the reasons why the two runs are not comparable as a whole, one line each."""
    found = [f"NOT COMPARABLE: {text}" for text in _differing(before.versions, after.versions)]
    found += [f"NOT COMPARABLE: option {text}" for text in _differing(before.options, after.options)]
    old, new = {row.key for row in before.rows}, {row.key for row in after.rows}
    for title, keys in (("before", sorted(old - new)), ("after", sorted(new - old))):
        if keys:
            more = f", and {len(keys) - 3} more" if len(keys) > 3 else ""
            found.append(f"NOT COMPARABLE: rows only {title}: {len(keys)}: {'; '.join(keys[:3])}{more}")
    return found


def change_lines(found: Sequence[Change], shown: int) -> Iterator[str]:
    """Yield a heading and a line per change for each kind; at most `shown` lines for a kind that is no worse."""
    for kind in Kind:
        of_kind = [change for change in found if change.kind is kind]
        if of_kind:
            yield f"{kind}: {len(of_kind)}"
            limit = len(of_kind) if kind in WORSE else shown
            yield from (f"  {change.key}: {change.text}" for change in of_kind[:limit])
            if len(of_kind) > limit:
                yield f"  ... and {len(of_kind) - limit} more (--all prints them)"


def totals_table(before: Run, after: Run) -> str:
    """Return the totals of both runs side by side."""
    old, new = ({total.name: total.value for total in run.totals} for run in (before, after))
    names = dict.fromkeys((*old, *new))
    rows = [
        (name, *map(_number, (old.get(name), new.get(name))), _delta(old.get(name), new.get(name))) for name in names
    ]
    return table(("total", "before", "after", "change"), rows)


def verdict_line(found: Sequence[Change]) -> str:
    """Return the last line: the numbers of worse, better and other changes."""
    worse = sum(change.kind in WORSE for change in found)
    better = sum(change.kind is Kind.BETTER for change in found)
    return f"{worse} worse, {better} better, {len(found) - worse - better} otherwise changed"


def _changes(before: Row | None, after: Row) -> Iterator[Change]:
    kind = _kind(before, after)
    if kind is not None:
        text = f"{_described(before) if before is not None else 'no row'} -> {_described(after)}"
        yield Change(kind=kind, key=after.key, text=f"{text}: {after.note}" if after.note else text)
    if before is not None and _is_slower(before, after):
        text = f"{before.cost:.3g} -> {after.cost:.3g} of {after.against}"
        yield Change(kind=Kind.SLOWER, key=after.key, text=text)


def _kind(before: Row | None, after: Row) -> Kind | None:
    """Return the kind of change, None if the row did not change."""
    order = tuple(Standing)
    if before is None:
        return _WORSENED[after.standing] if after.standing in (Standing.MISSED, Standing.FALSE_ALARM) else None
    if before.standing is not after.standing:
        return _WORSENED[after.standing] if order.index(after.standing) > order.index(before.standing) else Kind.BETTER
    if before.cause is not None and after.cause is None:
        return Kind.LOST_CAUSE
    return Kind.OTHER if _compared_fields(before) != _compared_fields(after) else None


def _compared_fields(row: Row) -> tuple[object, ...]:
    return row.verdict, row.codes, row.cause, *(getattr(row, name) for name in _COUNTS)


def _is_slower(before: Row, after: Row) -> bool:
    if before.cost is None or after.cost is None or before.against != after.against:
        return False
    return after.cost > SLOWER * before.cost


def _described(row: Row) -> str:
    counts = [f"{getattr(row, name)} {name}" for name in _COUNTS if getattr(row, name)]
    return ", ".join(filter(None, [f"{row.verdict} ({row.standing})", *row.codes, row.cause or "", *counts]))


def _differing(before: Sequence[Setting], after: Sequence[Setting]) -> Iterator[str]:
    old, new = ({setting.name: setting.value for setting in settings} for settings in (before, after))
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield f"{name} is {old.get(name, 'unknown')} before and {new.get(name, 'unknown')} after"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _delta(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None or before == after else f"{after - before:+.4g}"


def _read(path: Path) -> Run:
    try:
        return read_run(path)
    except (OSError, ValueError, ReportError) as error:
        sys.exit(_not_comparable(f"{path} is not a file that a benchmark wrote with --json: {error}"))


def _not_comparable(text: str) -> int:
    print(f"NOT COMPARABLE: {text}", file=sys.stderr)
    return 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="BEFORE.json")
    parser.add_argument("after", type=Path, metavar="AFTER.json")
    parser.add_argument("--all", action="store_true", help="print every change, not only the first 20 of a kind")
    return parser.parse_args()


if __name__ == "__main__":
    main()
