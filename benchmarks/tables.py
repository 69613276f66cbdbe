"""Tables of the accuracy benchmark."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.coverage import Coverage
from benchmarks.faults import FAULTS
from benchmarks.plain_table import table
from benchmarks.record import Standing, Total
from benchmarks.right_functions import Right
from benchmarks.trials import Outcome, Trial
from gradverify.result import Verdict


def fault_table(trials: Sequence[Trial]) -> str:
    """Return a table with a row per kind and scale of fault: outcomes, and faults that torch's gradcheck caught."""
    order = [(fault.kind, fault.scale) for fault in FAULTS]
    keys = [*order, *dict.fromkeys((t.kind, t.scale) for t in trials if (t.kind, t.scale) not in order)]
    rows = [_fault_row(kind, scale, [t for t in trials if (t.kind, t.scale) == (kind, scale)]) for kind, scale in keys]
    rows = [row for row in rows if row[2]]
    header = ("fault", "s", "planted", *Outcome, "torch slow", "torch fast")
    return table(header, [*rows, _fault_row("in all", None, trials)])


def right_table(rights: Sequence[Right]) -> str:
    """Return a table of verdicts on right functions, with a row per check and order."""
    rows = []
    for order in (1, 2):
        part = [right for right in rights if right.order == order]
        count = Counter(right.verdict for right in part)
        rows.append((f"ours, order {order}", len(part), *(count[verdict] for verdict in Verdict)))
    asked = [right for right in rights if right.order == 1]
    for name, verdicts in (("torch slow", [r.slow for r in asked]), ("torch fast", [r.fast for r in asked])):
        rows.append((name, len(asked), *(verdicts.count(verdict) for verdict in Verdict)))
    return table(("right functions", "run", *Verdict), rows)


def time_lines(rights: Sequence[Right]) -> Iterator[str]:
    """Yield our time relative to torch's slow gradcheck, in one line."""
    timed = [right for right in rights if right.order == 1 and right.slow is Verdict.PASS]
    if timed:
        ratio = statistics.median(right.ours_seconds / right.slow_seconds for right in timed)
        total = sum(r.ours_seconds for r in timed) / sum(r.slow_seconds for r in timed)
        yield f"time, ours : torch slow: median {ratio:.2f}, over all {total:.2f}, where torch's passes ({len(timed)})"


def coverage_lines(found: Sequence[Coverage]) -> Iterator[str]:
    """Yield lines with the number of error bars that cover the true error, and their widths."""
    judged, outside = sum(c.judged for c in found), sum(c.outside for c in found)
    wide, wide_outside = sum(c.unjudged for c in found), sum(c.unjudged_outside for c in found)
    ratios = sorted(ratio for c in found for ratio in c.ratios)
    share = 100 * (1 - outside / max(judged, 1))
    yield f"error bars: {judged - outside} of {judged} hold the true error ({share:.3f} %)"
    yield f"            of entries too wide to judge: {wide - wide_outside} of {wide}"
    if ratios:
        middle, most = statistics.median(ratios), ratios[int(0.9 * len(ratios))]
        yield f"            bar : true error, median {middle:.3g}, 90 % below {most:.3g}"
    for c in sorted(found, key=lambda c: -c.worst):
        if c.outside or c.unjudged_outside:
            counts = f"{c.outside} of {c.judged} judged, {c.unjudged_outside} of {c.unjudged} not"
            yield f"  too narrow: {c.subject}: {counts}; true error up to {c.worst:.3g} bars"


def accuracy_totals(trials: Sequence[Trial], rights: Sequence[Right], found: Sequence[Coverage]) -> Iterator[Total]:
    """Yield the numbers of all tables, without the counts of each standing."""
    for order in (1, 2):
        for verdict in Verdict:
            count = sum(right.order == order and right.verdict is verdict for right in rights)
            yield Total(name=f"right functions, order {order}: {verdict}", value=count)
    yield from (
        Total(name=f"faults: {outcome}", value=sum(trial.outcome is outcome for trial in trials)) for outcome in Outcome
    )
    yield Total(name="error bars", value=sum(c.judged for c in found))
    yield Total(name="error bars that do not hold the true error", value=sum(c.outside for c in found))
    ratios = [ratio for c in found for ratio in c.ratios]
    if ratios:
        yield Total(name="bar : true error, median", value=statistics.median(ratios))


def complaints(trials: Sequence[Trial], rights: Sequence[Right]) -> Iterator[str]:
    """Yield a line per false alarm, inconclusive right function, and fault that was not caught."""
    for right in rights:
        if right.row.standing is not Standing.RIGHT:
            yield f"{right.row.standing.upper()} order {right.order}: {right.subject}: {right.row.note}"
    for outcome in (Outcome.MISSED, Outcome.ELSEWHERE, Outcome.UNDER_LIMIT, Outcome.INCONCLUSIVE):
        for trial in trials:
            if trial.outcome is outcome:
                yield f"{outcome.upper()}: {trial.row.key} (size {trial.size:.2g}): {trial.row.note}"


def _fault_row(kind: str, scale: float | None, trials: Sequence[Trial]) -> tuple[object, ...]:
    count = Counter(trial.outcome for trial in trials)
    slow = [trial.slow for trial in trials if trial.slow is not Verdict.SKIP]
    fast = [trial.fast for trial in trials if trial.fast is not Verdict.SKIP]
    return (
        kind,
        "" if scale is None else f"{scale:.0e}",
        len(trials),
        *(count[outcome] for outcome in Outcome),
        f"{slow.count(Verdict.FAIL)}/{len(slow)}",
        f"{fast.count(Verdict.FAIL)}/{len(fast)}",
    )
