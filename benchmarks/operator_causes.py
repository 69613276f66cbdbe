"""Measure how often the right cause is named in torch's own operators: `python -m benchmarks.operator_causes`.

At torch's own test inputs, every fault of `benchmarks.causes` is planted in each operator that gradcheck passes. Prints
the same table, and every block with another cause. Needs `expecttest`, as `benchmarks.operators` does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from benchmarks.causes import Answer, answers_to, confusion, is_right, row_of, summary, told
from benchmarks.command import add_operator_options, parser_of, save, started
from benchmarks.operators import subjects
from benchmarks.subject import checked, made_ready
from gradverify.result import Verdict


def main() -> None:
    """Plant faults in the operators that the command line selects and print the table."""
    options = _options()
    begin, answers = time.perf_counter(), []
    for answer in _answers(options):
        answers.append(answer)
        if not is_right(answer):
            print(told(answer), flush=True)
    print(confusion(answers))
    print(*summary(answers), sep="\n")
    print(f"{len(answers)} wrong blocks, {time.perf_counter() - begin:.0f} s")
    save("operator_causes", options, map(row_of, answers))


def _answers(options: argparse.Namespace) -> Iterator[Answer]:
    for number, operator in enumerate(subjects(options.k, options.samples, "float64", options.seed)):
        if number % options.every or checked("gradcheck", operator.problem, options.seed).verdict is not Verdict.PASS:
            continue
        subject = made_ready(operator.name, operator.problem, options.seed)
        if subject is not None and bool(subject.jacobian.any()):
            yield from answers_to(subject, options.seed, "")


def _options() -> argparse.Namespace:
    parser = parser_of("Measure how often a cause is named rightly in torch's own operators.")
    add_operator_options(parser, samples=1)
    return started(parser)


if __name__ == "__main__":
    main()
