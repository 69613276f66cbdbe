"""Measure how often a cause is named rightly in torch's own operators: `python -m benchmarks.operator_causes`.

At torch's own test inputs, every fault of `benchmarks.causes` is planted in each operator that gradcheck passes. Prints
the same table, and every block that was called something else. Needs `expecttest`, as `benchmarks.operators` does.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator

import torch

from benchmarks.causes import Answer, answers_to, confusion, is_right, summary, told
from benchmarks.operators import subjects
from benchmarks.subject import checked, made_ready
from gradverify.result import Verdict


def main() -> None:
    """Run what the command line asks for and print the table."""
    options = _options()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    begin, answers = time.perf_counter(), []
    for answer in _answers(options):
        answers.append(answer)
        if not is_right(answer):
            print(told(answer), flush=True)
    print(confusion(answers))
    print(*summary(answers), sep="\n")
    print(f"{len(answers)} wrong blocks, {time.perf_counter() - begin:.0f} s")


def _answers(options: argparse.Namespace) -> Iterator[Answer]:
    for number, operator in enumerate(subjects(options.k, options.samples, "float64", options.seed)):
        if number % options.every or checked("gradcheck", operator.problem, options.seed).verdict is not Verdict.PASS:
            continue
        subject = made_ready(operator.name, operator.problem, options.seed)
        if subject is not None and bool(subject.jacobian.any()):
            yield from answers_to(subject, options.seed, "")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how often a cause is named rightly in torch's own operators.")
    parser.add_argument("-k", default="", metavar="TEXT", help="operators whose name contains TEXT")
    parser.add_argument("--samples", type=int, default=1, help="inputs of each operator, at most")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one operator and input in N")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
