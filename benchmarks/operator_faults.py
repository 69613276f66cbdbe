"""Plant mistakes in the gradients of torch's own operators: `python -m benchmarks.operator_faults [-k TEXT]`.

At torch's own test inputs, each operator that gradcheck passes gets a backward that is right but for one thing. Prints
how many of these are caught, and every one that is not. Needs `expecttest`, as `benchmarks.operators` does.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter

import torch

from benchmarks.mistakes import CAUGHT, answers, answers_table
from benchmarks.operators import subjects
from benchmarks.subject import checked
from gradverify.result import Verdict


def main() -> None:
    """Run what the command line asks for and print the table."""
    options = _options()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    begin, counts = time.perf_counter(), Counter[tuple[str, str]]()
    for subject in subjects(options.k, options.samples, "float64", options.seed):
        if checked("gradcheck", subject.problem, options.seed).verdict is not Verdict.PASS:
            continue
        for fault, answer, text in answers(subject.problem, options.seed):
            counts[fault, answer] += 1
            if answer != CAUGHT:
                print(f"{answer:12} {subject.name}: {fault}: {text}", flush=True)
    print(answers_table(counts))
    print(f"seed {options.seed}, {time.perf_counter() - begin:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Plant mistakes in the gradients of torch's own operators.")
    parser.add_argument("-k", default="", metavar="TEXT", help="operators whose name contains TEXT")
    parser.add_argument("--samples", type=int, default=2, help="inputs of each operator, at most")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
