"""Plant mistakes in the gradients of torch's own operators: `python -m benchmarks.operator_faults [-k TEXT]`.

At torch's own test inputs, each operator that gradcheck passes gets a backward that is right but for one thing. Prints
how many of these are caught, and every one that is not. Needs `expecttest`, as `benchmarks.operators` does.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.operators import Subject, subjects
from benchmarks.planting import planted
from benchmarks.subject import checked
from benchmarks.tables import table
from gradverify.core.function.analytic import Reverse, reverse, row
from gradverify.core.function.tape import record
from gradverify.errors import GradverifyError
from gradverify.result import CheckResult, Verdict

_CAUGHT, _UNDER, _OPEN, _MISSED = "caught", "under limit", "inconclusive", "missed"
_ANSWERS = (_CAUGHT, _UNDER, _OPEN, _MISSED)

Change = Callable[[Tensor, int], float]  # of a gradient (n,) and a place in it: the wrong number there


def _times(factor: float) -> Change:
    return lambda gradient, place: factor * float(gradient[place])


def _neighbours(share: float) -> Change:
    return lambda gradient, place: float(gradient[place]) + share * float(gradient[place - 1])


FAULTS: dict[str, Change] = {
    "one × (1 + 1e-6)": _times(1 + 1e-6),
    "one × (1 + 1e-4)": _times(1 + 1e-4),
    "one × -1": _times(-1.0),
    "one × 0": _times(0.0),
    "one + 1e-4 of another": _neighbours(1e-4),
}


def main() -> None:
    """Run what the command line asks for and print the table."""
    options = _options()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    begin, counts = time.perf_counter(), Counter[tuple[str, str]]()
    for subject in subjects(options.k, options.samples, "float64", options.seed):
        for fault, answer, text in _answers(subject, options.seed):
            counts[fault, answer] += 1
            if answer != _CAUGHT:
                print(f"{answer:12} {subject.name}: {fault}: {text}", flush=True)
    rows = [
        (fault, sum(counts[fault, each] for each in _ANSWERS), *(counts[fault, each] for each in _ANSWERS))
        for fault in FAULTS
    ]
    print(table(("fault", "planted", *_ANSWERS), rows))
    print(f"seed {options.seed}, {time.perf_counter() - begin:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Plant mistakes in the gradients of torch's own operators.")
    parser.add_argument("-k", default="", metavar="TEXT", help="operators whose name contains TEXT")
    parser.add_argument("--samples", type=int, default=2, help="inputs of each operator, at most")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _answers(subject: Subject, seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield every fault that can be planted with what became of it."""
    right = checked("gradcheck", subject.problem, seed)
    if right.verdict is not Verdict.PASS:
        return
    try:
        tape = record(subject.problem)
        backward = reverse(subject.problem, tape, seed)
    except GradverifyError:
        return
    gradient = backward.heard[1]
    places = (gradient != 0).nonzero().squeeze(1)
    if not len(places) or not bool(gradient.isfinite().all()):
        return
    place = int(places[torch.randint(len(places), (), generator=torch.Generator().manual_seed(seed))])
    for fault, change in FAULTS.items():
        off = abs(change(gradient, place) / float(gradient[place]) - 1)
        if not off:
            continue
        problem = planted(subject.problem, [output.name for output in tape.outputs], _claim(backward, place, change))
        found = checked("gradcheck", problem, seed)
        yield fault, _answer(found, off), found.message


def _claim(backward: Reverse, place: int, change: Change) -> Callable[[Tensor], Tensor]:
    def claim(cotangent: Tensor) -> Tensor:
        gradient = row(backward, cotangent).clone()
        gradient[place] = change(gradient, place)
        return gradient

    return claim


def _answer(found: CheckResult, off: float) -> str:
    """Return what became of a fault that is so much of the entry, in the answer to some cotangent."""
    if found.verdict is Verdict.FAIL:
        return _CAUGHT
    if found.verdict is not Verdict.PASS:
        return _OPEN
    return _UNDER if found.detection_limit is None or off <= found.detection_limit else _MISSED


if __name__ == "__main__":
    main()
