"""Judge every row of the zoo, right and wrong ones: `python -m benchmarks.zoo [-k TEXT] [--json FILE]`.

Right functions are judged at both orders. Prints the rows whose verdict is not the one that the zoo expects. This is
the fastest benchmark of verdicts: it plants no faults and does not run torch's gradcheck.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.command import parsed_options, parser_of, save
from benchmarks.record import Row, Standing, judged_row, standing_totals, with_evaluations
from benchmarks.right_functions import row_at_order_1, row_at_order_2
from benchmarks.subject import problem_of, result_of
from gradverify.result import Verdict
from tests.zoo.catalogue import ALL_WRONG, ZOO
from tests.zoo.slow_functions import SLOW_FUNCTIONS, WRONG_SLOW_FUNCTIONS
from tests.zoo.specimen import Specimen
from tests.zoo.wrong import Wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row to judge; `judge` may be called repeatedly."""

    key: str
    judge: Callable[[], Row]


def main() -> None:
    """Judge the rows that the command line selects and print the unexpected verdicts."""
    options = _options()
    begin, rows = time.perf_counter(), []
    for case in zoo_cases(options.k, options.seed):
        row = case.judge()
        rows.append(row)
        if row.standing is not Standing.RIGHT:
            print(f"{row.standing:12} {row.key}: {row.note}", flush=True)
    print(", ".join(f"{total.name} {total.value:.0f}" for total in standing_totals(rows) if total.value))
    print(f"seed {options.seed}, {time.perf_counter() - begin:.0f} s")
    save("zoo", options, rows)


def zoo_cases(text: str, seed: int) -> Iterator[Case]:
    """Yield the rows of the zoo whose name or tag contains the text: right ones at both orders, then wrong ones."""
    for specimen in (*ZOO, *SLOW_FUNCTIONS):
        if _has(text, specimen):
            yield Case(key=specimen.name, judge=partial(_judged_at_order_1, specimen, seed))
            yield Case(key=f"{specimen.name}, order 2", judge=partial(_judged_at_order_2, specimen, seed))
    for wrong in (*ALL_WRONG, *WRONG_SLOW_FUNCTIONS):
        if _has(text, wrong.specimen):
            yield Case(key=f"wrong: {wrong.specimen.name}", judge=partial(_judged_wrong, wrong, seed))


def _judged_at_order_1(specimen: Specimen, seed: int) -> Row:
    result = result_of("gradcheck", problem_of(specimen, seed), seed)
    return with_evaluations(row_at_order_1(specimen, result), result)


def _judged_at_order_2(specimen: Specimen, seed: int) -> Row:
    result = result_of("gradgradcheck", problem_of(specimen, seed), seed)
    return with_evaluations(row_at_order_2(specimen, result), result)


def _judged_wrong(wrong: Wrong, seed: int) -> Row:
    result = result_of(wrong.check, problem_of(wrong.specimen, seed), seed)
    standing = {Verdict.INCONCLUSIVE: Standing.INCONCLUSIVE, Verdict.ERROR: Standing.ERROR}.get(result.verdict)
    found = Standing.RIGHT if wrong.is_named_in(result) else Standing.MISSED
    return with_evaluations(judged_row(f"wrong: {wrong.specimen.name}", result, standing or found), result)


def _has(text: str, specimen: Specimen) -> bool:
    return text in specimen.name or any(text in tag for tag in specimen.tags)


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("-k", default="", metavar="TEXT", help="rows whose name or tag contains TEXT")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    return parsed_options(parser)


if __name__ == "__main__":
    main()
