"""Gradients with one wrong entry, and the verdict of gradcheck on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.plain_table import table
from benchmarks.planting import planted
from benchmarks.record import Row, Standing, judged_row
from benchmarks.subject import result_of
from gradverify.core.backward.vjps import Backward, backward_of, flat_vjp
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.errors import GradverifyError
from gradverify.result import CheckResult, Verdict

CAUGHT, UNDER, KINK, OPEN, MISSED = "caught", "under limit", "beside a kink", "inconclusive", "missed"
_STANDINGS = {
    CAUGHT: Standing.RIGHT,
    UNDER: Standing.BELOW_LIMIT,
    KINK: Standing.BELOW_LIMIT,
    OPEN: Standing.INCONCLUSIVE,
    MISSED: Standing.MISSED,
}

Change = Callable[[Tensor, int], float]  # (gradient (n,), place) -> wrong value at that place


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOutcome:
    """The outcome of one fault."""

    fault: str
    outcome: str  # caught, under limit, ...
    row: Row


def outcomes(name: str, problem: Problem, seed: int, least: float = 0.0) -> Iterator[FaultOutcome]:
    """Yield the outcome of every fault that can be planted in a problem that passes.

    The place is drawn from entries of the gradient above `least` times the largest.
    """
    try:
        tape = record(problem)
        backward = backward_of(problem, tape, seed)
    except GradverifyError:
        return
    gradient = backward.known_vjp[1]
    places = (gradient.abs() > least * gradient.abs().amax()).nonzero().squeeze(1) if len(gradient) else gradient
    if not len(places) or not bool(gradient.isfinite().all()):
        return
    place = int(places[torch.randint(len(places), (), generator=torch.Generator().manual_seed(seed))])
    for fault, change in FAULTS.items():
        relative_error = abs(change(gradient, place) / float(gradient[place]) - 1)
        if not relative_error:
            continue
        wrong = planted(problem, [output.name for output in tape.outputs], _claim(backward, place, change))
        found = result_of("gradcheck", wrong, seed)
        said = _outcome(found, relative_error)
        row = judged_row(f"{name}: {fault}", found, _STANDINGS[said], "" if said == CAUGHT else found.message)
        yield FaultOutcome(fault=fault, outcome=said, row=row)


def _claim(backward: Backward, place: int, change: Change) -> Callable[[Tensor], Tensor]:
    def claim(cotangent: Tensor) -> Tensor:
        gradient = flat_vjp(backward, cotangent).clone()
        gradient[place] = change(gradient, place)
        return gradient

    return claim


def _outcome(found: CheckResult, relative_error: float) -> str:
    """Return the outcome of a fault with relative error `relative_error` in the gradient of a random cotangent."""
    if found.verdict is Verdict.FAIL:
        return CAUGHT
    if found.verdict is not Verdict.PASS:
        return OPEN
    if found.detection_limit is None or relative_error <= found.detection_limit:
        return UNDER
    return KINK if found.kinks else MISSED  # several values are accepted at a kink


def outcomes_table(found: Sequence[FaultOutcome]) -> str:
    """Return a table with a row per fault: number planted, and number of each outcome."""
    counts = Counter((answer.fault, answer.outcome) for answer in found)
    rows = [
        (fault, sum(counts[fault, each] for each in _STANDINGS), *(counts[fault, each] for each in _STANDINGS))
        for fault in FAULTS
    ]
    return table(("fault", "planted", *_STANDINGS), rows)
