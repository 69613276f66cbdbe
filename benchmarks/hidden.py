"""Search for mistakes that the inputs given do not show: `python -m benchmarks.hidden [-k TEXT] [--zoo] [--json FILE]`.

Every subject is a wrong Function with a right twin; both are right at the inputs given. `gradverify.explore` is to find
a failing input of the wrong one within its budget, and none of the right one. Subjects in `later_subjects` were written
after the changes that explore makes were settled, by someone who did not know them, and are counted apart.

With `--zoo`, the right functions of the zoo are explored instead; every failure there is printed.

The cost of a try is the time of a search in a right twin over that of the forwards and backwards that it judges, one of
each per try, at the inputs tried; proposals that turn out not to be legal, and checks at kinks, are included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import gradverify
from benchmarks.command import parsed_options, parser_of, save
from benchmarks.hidden_subject import Hidden
from benchmarks.hidden_subjects import SUBJECTS
from benchmarks.later_subjects import LATER
from benchmarks.record import Row, Standing, Total
from gradverify.exploration import judge
from gradverify.result import Exploration
from tests.zoo.catalogue import ZOO
from tests.zoo.specimen import Specimen

_BUDGET = 400  # legal tries
_LONG = 10  # seconds of a search that are printed
_WRONG_AT_ORDER_2 = {"wrong at order 2", "open at order 2"}  # tags of zoo rows that are explored at order 1 only


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """One subject and what was found."""

    subject: Hidden
    found: int | None  # number of the try that found the mistake, None if none did
    seconds: float  # of the whole search in the wrong function
    alarms: int  # failures of the right twin
    cost: float  # of one try, in forwards and backwards


def main() -> None:
    """Search the subjects, or the zoo, and print what was found."""
    options = _options()
    rows, totals = _zoo(options.k) if options.zoo else _subjects(options.k)
    save("hidden", options, rows, totals)


def _subjects(text: str) -> tuple[list[Row], list[Total]]:
    rows: list[Row] = []
    totals: list[Total] = []
    for name, subjects in (("written before", SUBJECTS), ("written afterwards", LATER)):
        searched = [_searched(subject) for subject in subjects if text in subject.name]
        rows += [row for each in searched for row in _rows(each)]
        if searched:
            totals += _totals(name, searched)
    for total in totals:
        print(f"{total.name}: {total.value:.4g}")
    return rows, totals


def _searched(subject: Hidden) -> Searched:
    checks = ("gradcheck", "gradgradcheck") if subject.change == "second order" else ("gradcheck",)
    begin = time.perf_counter()
    wrong = gradverify.explore(subject.wrong, subject.inputs(), checks=checks, budget=_BUDGET, **subject.declared)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    with _timed() as judged:
        right = gradverify.explore(subject.right, subject.inputs(), checks=checks, budget=_BUDGET, **subject.declared)
    cost = (time.perf_counter() - begin) / sum(judged)
    found = Searched(
        subject=subject,
        found=wrong.failures[0].number if wrong.failures else None,
        seconds=seconds,
        alarms=len(right.failures),
        cost=cost,
    )
    _print(found, wrong, right)
    return found


def _print(found: Searched, wrong: Exploration, right: Exploration) -> None:
    name = f"{found.subject.change:12} {found.subject.name:32}"
    tries = f"try {found.found:3}" if found.found is not None else "not found"
    what = ", ".join(wrong.failures[0].changes) if wrong.failures else wrong.message
    print(f"{name} {tries:9} {found.seconds:5.1f} s, try costs {found.cost:4.1f}  {what}"[:150], flush=True)
    for alarm in right.failures:
        print(f"{'':12} false alarm: {', '.join(alarm.changes)}: {alarm.message}", flush=True)


@contextmanager
def _timed() -> Iterator[list[float]]:
    """Yield a list that gets the seconds of every forward and backward that is judged."""
    spent = [0.0]
    record, vjp = judge.record, judge.vjp

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                spent.append(time.perf_counter() - begin)

        return call

    judge.record, judge.vjp = timed(record), timed(vjp)
    try:
        yield spent
    finally:
        judge.record, judge.vjp = record, vjp


def _rows(found: Searched) -> Iterable[Row]:
    standing = Standing.MISSED if found.found is None else Standing.RIGHT
    verdict = "not found" if found.found is None else "found"
    name = found.subject.name
    yield Row(key=f"wrong: {name}", standing=standing, verdict=verdict, note=f"try {found.found}", cost=found.cost)
    standing = Standing.FALSE_ALARM if found.alarms else Standing.RIGHT
    yield Row(key=f"right: {name}", standing=standing, verdict="accused" if found.alarms else "not accused")


def _totals(name: str, searched: Sequence[Searched]) -> list[Total]:
    numbers = sorted(each.found for each in searched if each.found is not None)
    seconds = [each.seconds for each in searched]
    values = {
        "subjects": len(searched),
        "found": len(numbers),
        "found, share": len(numbers) / len(searched),
        "tries, median": statistics.median(numbers) if numbers else 0.0,
        "tries, p90": numbers[min(len(numbers) - 1, int(0.9 * len(numbers)))] if numbers else 0.0,
        "seconds, median": statistics.median(seconds),
        "seconds, most": max(seconds),
        "twins accused": sum(each.alarms > 0 for each in searched),
        "cost of a try, median": statistics.median(each.cost for each in searched),
        "cost of a try, most": max(each.cost for each in searched),
    }
    return [Total(name=f"{name}: {key}", value=float(value)) for key, value in values.items()]


def _zoo(text: str) -> tuple[list[Row], list[Total]]:
    """Explore the right functions of the zoo, each in a process of its own, and print every failure."""
    rows, tries = [], 0
    fork = multiprocessing.get_context("fork")
    for specimen in ZOO:
        if text not in specimen.name:
            continue
        receiver, sender = fork.Pipe(duplex=False)
        process = fork.Process(target=_explored, args=(specimen, sender))
        process.start()
        sender.close()
        try:
            row, count = receiver.recv()
        except EOFError:
            process.join()
            row, count = Row(key=specimen.name, standing=Standing.ERROR, verdict=f"ended with {process.exitcode}"), 0
            print(f"{row.key}: the process {row.verdict}", flush=True)
        process.join()
        rows.append(row)
        tries += count
    accused = sum(row.standing is Standing.FALSE_ALARM for row in rows)
    print(f"{len(rows)} right functions, {tries:,} tries, {accused} with failures")
    return rows, [Total(name="tries", value=tries), Total(name="with failures", value=accused)]


def _explored(specimen: Specimen, sender: Connection) -> None:
    """Explore one right function and send its row and its number of tries."""
    checks = ("gradcheck",) if specimen.tags & _WRONG_AT_ORDER_2 else ("gradcheck", "gradgradcheck")
    begin = time.perf_counter()
    found = gradverify.explore(specimen.function, specimen.inputs(0), checks=checks, budget=_BUDGET)
    for each in found.failures:
        print(f"{specimen.name}: try {each.number}, {', '.join(each.changes)}: {each.message}")
        print("    " + each.inputs.replace("\n", "\n    "), flush=True)
    seconds = time.perf_counter() - begin
    if seconds > _LONG:
        print(f"{specimen.name}: {seconds:.0f} s", flush=True)
    standing = Standing.FALSE_ALARM if found.failures else Standing.RIGHT
    counts = f"{len(found.failures)} failures, {len(found.extremes)} extremes, {len(found.questions)} questions"
    sender.send((Row(key=specimen.name, standing=standing, verdict=counts, note=found.message), found.tries))


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("-k", default="", metavar="TEXT", help="subjects whose name contains TEXT")
    parser.add_argument("--zoo", action="store_true", help="explore the right functions of the zoo instead")
    return parsed_options(parser)


if __name__ == "__main__":
    main()
