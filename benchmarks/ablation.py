"""Switch off one mechanism at a time and count the verdicts that change: `python -m benchmarks.ablation [NAME...]`.

The rows are those of the zoo, and with `--compositions N` and `--operators N` also rows of these benchmarks. If a
mechanism changes no row, these rows would not show its removal. Counts do not add up over redundant mechanisms: a row
counts only if one mechanism alone decides it. `--first` stops each mechanism at the first row that is worse without it.
Mechanisms that save work show in the evaluations of a row.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.command import parsed_options, parser_of, save
from benchmarks.compare import WORSE, Change, Kind, change_lines, changes
from benchmarks.compositions import differentiated_problems
from benchmarks.mechanisms import MECHANISMS, Mechanism, calls_noted, switched_off
from benchmarks.operators import subjects
from benchmarks.plain_table import table
from benchmarks.record import Row, Total, judged_row, run_of, standing_of_right
from benchmarks.subject import result_of
from benchmarks.zoo import Case, zoo_cases
from gradverify.core.model.problem import Problem

_DTYPES = ("float64", "float32", "bfloat16")  # of torch's operators


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The rows of all cases with all mechanisms on."""

    cases: tuple[Case, ...]
    rows: tuple[Row, ...]
    called: tuple[frozenset[str], ...]  # names of the mechanisms that each case called


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Rows that change when one mechanism is off."""

    mechanism: Mechanism
    cases: int  # cases that call it
    changes: tuple[Change, ...]  # rows that differ without it, worst first

    @property
    def worse(self) -> int:
        """Number of rows that are worse without it."""
        return sum(change.kind in WORSE for change in self.changes)

    @property
    def better(self) -> int:
        """Number of rows that are better without it."""
        return sum(change.kind is Kind.BETTER for change in self.changes)


def main() -> None:
    """Switch off the mechanisms that the command line names, by default all, one at a time, and print the counts."""
    options = _options()
    begin = time.perf_counter()
    chosen = [
        each for each in MECHANISMS if not options.name or each.name in options.name or each.group in options.name
    ]
    found = baseline(tuple(_cases(options))[:: options.every], MECHANISMS)
    effects = []
    for mechanism in chosen:
        effects.append(effect_of(mechanism, found, only_first=options.first))
        print(f"\r{len(effects)}/{len(chosen)}", end="", file=sys.stderr, flush=True)
        if options.verbose:
            print(
                f"\n{mechanism.name} off:", *change_lines(effects[-1].changes, shown=sys.maxsize), sep="\n", flush=True
            )
    print(file=sys.stderr)
    print(effects_table(effects))
    print(f"{len(found.cases)} rows, seed {options.seed}, {time.perf_counter() - begin:.0f} s")
    totals = [Total(name=f"{each.mechanism.name}: rows decided", value=len(each.changes)) for each in effects]
    save("ablation", options, found.rows, totals)


def baseline(cases: Sequence[Case], mechanisms: Sequence[Mechanism]) -> Baseline:
    """Return the rows of all cases with every mechanism on, and the mechanisms that each case calls."""
    rows, called = [], []
    for case in cases:
        asked: set[str] = set()
        with calls_noted(mechanisms, asked):
            rows.append(case.judge())
        called.append(frozenset(asked))
    return Baseline(cases=tuple(cases), rows=tuple(rows), called=tuple(called))


def effect_of(mechanism: Mechanism, found: Baseline, *, only_first: bool = False) -> Effect:
    """Return the changes when the cases that call the mechanism are judged without it.

    With `only_first`, the cases after the first one that is worse are left out.
    """
    changed: list[Change] = []
    calling = [
        (case, row)
        for case, row, asked in zip(found.cases, found.rows, found.called, strict=True)
        if mechanism.name in asked
    ]
    with switched_off(mechanism):
        for case, row in calling:
            changed += changes(run_of("ablation", {}, [row]), run_of("ablation", {}, [case.judge()]))
            if only_first and any(change.kind in WORSE for change in changed):
                break
    changed.sort(key=lambda change: tuple(Kind).index(change.kind))
    return Effect(mechanism=mechanism, cases=len(calling), changes=tuple(changed))


def effects_table(effects: Sequence[Effect]) -> str:
    """Return a table with a row per mechanism: cases that call it, and rows that change without it."""
    rows = [
        (f"{each.mechanism.group}: {each.mechanism.name}", each.cases, len(each.changes), each.worse, each.better)
        for each in effects
    ]
    return table(("mechanism", "asked", "decided", "worse without", "better without"), rows)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    yield from zoo_cases(options.k, options.seed)
    for name, problem in differentiated_problems(range(options.compositions)):
        yield Case(key=name, judge=partial(_judged_right, name, problem, options.seed))
    for dtype in _DTYPES if options.operators else ():
        for number, subject in enumerate(subjects(options.k, 1, dtype, options.seed)):
            if number % options.operators == 0:
                name = f"{subject.name}, {dtype}"
                yield Case(key=name, judge=partial(_judged_right, name, subject.problem, options.seed))


def _judged_right(name: str, problem: Problem, seed: int) -> Row:
    result = result_of("gradcheck", problem, seed)
    return judged_row(name, result, standing_of_right(result.verdict))


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    names = ", ".join(mechanism.name for mechanism in MECHANISMS)
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"a group (excuse, noise, look, other), or of: {names}")
    parser.add_argument("-k", default="", metavar="TEXT", help="rows and operators whose name contains TEXT")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="judge one row in N")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--compositions", type=int, default=0, metavar="N", help="judge N compositions, too")
    parser.add_argument(
        "--operators", type=int, default=0, metavar="N", help="judge one of torch's operators in N, too"
    )
    parser.add_argument("--first", action="store_true", help="stop a mechanism at the first row that is worse")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every row that changes")
    options = parsed_options(parser)
    unknown = sorted(set(options.name) - {name for each in MECHANISMS for name in (each.name, each.group.value)})
    if unknown:
        parser.error(f"no mechanism or group is called {', '.join(unknown)}; there are {names}")
    return options


if __name__ == "__main__":
    main()
