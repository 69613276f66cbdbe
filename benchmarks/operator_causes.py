"""Measure how often the right cause is named in torch's own operators: `python -m benchmarks.operator_causes`.

At torch's own test inputs, every fault of `benchmarks.causes` is planted in each operator that gradcheck passes. Prints
the same table, and every block with another cause. Needs `expecttest`, as `benchmarks.operators` does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from benchmarks.causes import Diagnosis, answer_line, answers_to, confusion, is_right, row_of, summary
from benchmarks.command import add_operator_options, parsed_options, parser_of, save
from benchmarks.operators import subjects
from benchmarks.subject import prepared, result_of
from gradverify.result import Verdict


def main() -> None:
    """Plant faults in the operators that the command line selects and print the table."""
    options = _options()
    begin, answers = time.perf_counter(), []
    for answer in _answers(options):
        answers.append(answer)
        if not is_right(answer):
            print(answer_line(answer), flush=True)
    print(confusion(answers))
    print(*summary(answers), sep="\n")
    print(f"{len(answers)} wrong blocks, {time.perf_counter() - begin:.0f} s")
    save("operator_causes", options, map(row_of, answers))


def _answers(options: argparse.Namespace) -> Iterator[Diagnosis]:
    for number, operator in enumerate(subjects(options.k, options.samples, "float64", options.seed)):
        if number % options.every or result_of("gradcheck", operator.problem, options.seed).verdict is not Verdict.PASS:
            continue
        subject = prepared(operator.name, operator.problem, options.seed)
        if subject is not None and bool(subject.jacobian.any()):
            yield from answers_to(subject, options.seed, "")


def _options() -> argparse.Namespace:
    parser = parser_of("Measure how often a cause is named rightly in torch's own operators.")
    add_operator_options(parser, samples=1)
    return parsed_options(parser)


if __name__ == "__main__":
    main()
