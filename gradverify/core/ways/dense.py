"""The comparison of small Jacobians: one move per input coordinate, one vjp per output coordinate."""

from __future__ import annotations

from gradverify.case import Settings
from gradverify.core.excuses.second_look import second_look
from gradverify.core.function.rows import jacobian
from gradverify.core.judging.bench import bench
from gradverify.core.judging.columns import judge_all
from gradverify.core.judging.ground import Ground, Reconsider
from gradverify.core.judging.tally import Comparison, tallied
from gradverify.core.judging.ties import judge_together
from gradverify.core.numeric.moves import single_moves
from gradverify.core.ways.straight import straight_moves

LIMIT = 4_000_000  # entries of a Jacobian that is written down
_MOVES = 3_000  # coordinates that are moved one by one


def affordable(ground: Ground) -> bool:
    """Tell whether the Jacobian is small enough to be written down, and its inputs to be moved one by one."""
    return ground.entries <= LIMIT and ground.sampled.point.numel() <= _MOVES


def compare_densely(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Compare every entry, column by column; raises EvaluationError."""
    sampled = ground.sampled
    moves = single_moves(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    claimed = jacobian(ground.backward).T.contiguous()
    at = bench(sampled, ground.noise, ground.lengths, moves, claimed, settings)
    walk = ground.opening.walk
    looked = judge_all(at, walk, None if walk is not None else straight_moves(at, settings.seed))
    judged = [(chosen, second_look(at, ground, chosen, part, settings)) for chosen, part in looked]
    return tallied(at, judge_together(at, judged, settings.seed), settings, reconsider)
