"""The pair of Jacobians, claimed and measured, compared in every entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from gradverify.case import Settings
from gradverify.core.analytic import Reverse, jacobian, reverse
from gradverify.core.columns import Bench, bench, judge_all
from gradverify.core.compare import Code, Judged
from gradverify.core.coordinates import Block
from gradverify.core.evidence import Evidence, Whole
from gradverify.core.moves import single_moves
from gradverify.core.noise import measure
from gradverify.core.oblique import excuse_oblique
from gradverify.core.problem import Problem
from gradverify.core.sampler import sampler
from gradverify.core.scale import scales
from gradverify.core.spread import excuse
from gradverify.core.tally import Comparison, Tally
from gradverify.core.tape import Tape
from gradverify.errors import GradverifyError

DENSE_LIMIT = 50_000_000  # entries of a Jacobian that are written down


class TooLargeError(GradverifyError):
    """The Jacobian has more entries than are written down."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        super().__init__(f"the Jacobian has {entries:,} entries; at most {DENSE_LIMIT:,} are compared one by one")


Reconsider = Callable[[Bench, Tensor, Judged], Judged]  # a second look at the verdicts on some moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two Jacobians ready to be compared."""

    at: Bench
    backward: Reverse


def prepare(problem: Problem, tape: Tape, settings: Settings) -> Pair:
    """Sample the forward, measure its noise and write down what backward claims; raises EvaluationError, TooLargeError.

    Costs about 14 forwards and one vjp per output coordinate.
    """
    sampled = sampler(problem, tape)
    entries = sampled.point.numel() * sampled.value.numel()
    if entries > DENSE_LIMIT:
        raise TooLargeError(entries)
    backward = reverse(problem, tape, settings.seed)
    lengths = scales(sampled)
    noise = measure(sampled, lengths, settings.seed)
    moves = single_moves(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    claimed = jacobian(backward).T.contiguous()
    return Pair(at=bench(sampled, noise, lengths, moves, claimed, settings), backward=backward)


def compare(pair: Pair, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Judge every entry; accusations are looked at again before they are raised."""
    tally = Tally(at=pair.at, keep=settings.max_elements)
    for chosen, judged in judge_all(pair.at):
        judged = excuse(pair.at, pair.backward, chosen, judged)
        judged = excuse_oblique(pair.at, chosen, judged, settings.seed)
        tally.add(chosen, reconsider(pair.at, chosen, judged))
    return tally.comparison()


def evidence(pair: Pair, comparison: Comparison, of: Block, wrt: Block) -> Evidence | None:
    """Return all there is to know of one block, None where its entries were too many to keep."""
    measured = comparison.measured
    if measured is None:
        return None
    whole = Whole(
        outputs=pair.at.sampled.outputs,
        inputs=pair.at.sampled.inputs,
        claimed=pair.at.claimed.T,
        numeric=measured.numeric.T,
        bar=measured.bar.T,
        wrong=(measured.code == Code.MISMATCH).T,
    )
    place = (of.coordinates, wrt.coordinates)
    return Evidence(
        of=of,
        wrt=wrt,
        claimed=whole.claimed[place],
        numeric=whole.numeric[place],
        bar=whole.bar[place],
        wrong=whole.wrong[place],
        backward=pair.backward,
        whole=whole,
    )


def as_judged(at: Bench, chosen: Tensor, judged: Judged) -> Judged:
    """Leave the verdicts as they are: the Reconsider of order 1."""
    del at, chosen
    return judged
