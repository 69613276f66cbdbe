"""Plant mistakes in the gradients of torch's own operators: `python -m benchmarks.operator_faults [-k TEXT]`.

At torch's own test inputs, each operator that gradcheck passes gets a backward with one wrong entry. Prints how many
of these are caught, and every one that is not. Needs `expecttest`, as `benchmarks.operators` does.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.command import add_operator_options, parsed_options, parser_of, save
from benchmarks.mistakes import FaultOutcome, outcomes, outcomes_table
from benchmarks.operators import subjects
from benchmarks.record import Standing
from benchmarks.subject import result_of
from gradverify.result import Verdict


def main() -> None:
    """Plant faults in the operators that the command line selects and print the table."""
    options = _options()
    begin, found = time.perf_counter(), list[FaultOutcome]()
    for number, subject in enumerate(subjects(options.k, options.samples, "float64", options.seed)):
        if number % options.every:
            continue
        if result_of("gradcheck", subject.problem, options.seed).verdict is not Verdict.PASS:
            continue
        for answer in outcomes(subject.name, subject.problem, options.seed):
            found.append(answer)
            if answer.row.standing is not Standing.RIGHT:
                print(f"{answer.outcome:12} {answer.row.key}: {answer.row.note}", flush=True)
    print(outcomes_table(found))
    print(f"seed {options.seed}, {time.perf_counter() - begin:.0f} s")
    save("operator_faults", options, [answer.row for answer in found])


def _options() -> argparse.Namespace:
    parser = parser_of("Plant mistakes in the gradients of torch's own operators.")
    add_operator_options(parser, samples=2)
    return parsed_options(parser)


if __name__ == "__main__":
    main()
