"""Measure how often the checks are right: `python -m benchmarks.accuracy [--quick] [-k TEXT] [--json FILE]`."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator

from benchmarks.command import parsed_options, parser_of, save
from benchmarks.coverage import Coverage, coverage_of
from benchmarks.faults import FAULTS, limit_fault
from benchmarks.right_functions import Right, judge_order_1, judge_order_2, passing_modes
from benchmarks.subject import subject_of
from benchmarks.tables import accuracy_totals, complaints, coverage_lines, fault_table, right_table, time_lines
from benchmarks.trials import Trial, attempt
from gradverify.result import Verdict
from tests.zoo.catalogue import ZOO
from tests.zoo.specimen import Specimen

QUICK_SHARE = 9  # --quick judges one specimen in 9
FAULTS_EACH = 10  # faults planted in each specimen
LIMIT_FAULTS = 2  # additional faults of twice the printed detection limit


def main() -> None:
    """Judge the specimens that the command line selects and print the tables."""
    options = _options()
    begin = time.perf_counter()
    chosen = _chosen(options)
    rights: list[Right] = []
    coverage: list[Coverage] = []
    trials: list[Trial] = []
    for number, specimen in enumerate(chosen):
        first = judge_order_1(specimen, options.seed)
        rights += [first, judge_order_2(specimen, options.seed)]
        coverage += filter(None, [coverage_of(specimen, options.seed)])
        trials += _trials(specimen, first, options)
        print(f"\r{number + 1}/{len(chosen)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(fault_table(trials), right_table(rights), sep="\n\n", end="\n\n")
    print(*time_lines(rights), *coverage_lines(coverage), "", *complaints(trials, rights), sep="\n")
    print(f"\n{len(chosen)} specimens, {len(trials)} faults, seed {options.seed}, {time.perf_counter() - begin:.0f} s")
    rows = [*(right.row for right in rights), *(trial.row for trial in trials)]
    save("accuracy", options, rows, accuracy_totals(trials, rights, coverage))


def _options() -> argparse.Namespace:
    parser = parser_of("Measure how often the checks are right.")
    parser.add_argument("--quick", action="store_true", help="a ninth of the zoo, within a minute")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and faults")
    parser.add_argument("--faults", type=int, default=FAULTS_EACH, help="planted in every specimen")
    parser.add_argument("--no-torch", action="store_true", help="leave torch's gradcheck out of the planted faults")
    parser.add_argument("-k", default="", metavar="TEXT", help="specimens whose name or tag contains TEXT")
    return parsed_options(parser)


def _chosen(options: argparse.Namespace) -> list[Specimen]:
    found = [s for s in ZOO if options.k in s.name or any(options.k in tag for tag in s.tags)]
    return found[options.seed % QUICK_SHARE :: QUICK_SHARE] if options.quick else found


def _trials(specimen: Specimen, right: Right, options: argparse.Namespace) -> Iterator[Trial]:
    subject = subject_of(specimen, options.seed)
    if subject is None:
        return
    modes = frozenset() if options.no_torch else passing_modes(right)
    rng = random.Random(f"{specimen.name} {options.seed}")
    planted = 0
    for fault in rng.sample(FAULTS, len(FAULTS)):
        trial = attempt(subject, fault, rng.getrandbits(32), modes)
        if trial is not None:
            planted += 1
            yield trial
        if planted == options.faults:
            break
    if right.verdict is Verdict.PASS and right.limit is not None:
        for _ in range(LIMIT_FAULTS):
            trial = attempt(subject, limit_fault(right.limit), rng.getrandbits(32), frozenset())
            if trial is not None:
                yield trial


if __name__ == "__main__":
    main()
