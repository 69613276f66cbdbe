"""A structure taken for true: what backward claims under it, and the comparison, unless either gives it away."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.excuses.second_look import second_look
from gradverify.core.function.rows import jacobian
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.columns import is_complete, judge_all
from gradverify.core.judging.ground import Ground, Reconsider
from gradverify.core.judging.tally import Comparison, tallied
from gradverify.core.judging.ties import judge_together
from gradverify.core.numeric.walk import Walk
from gradverify.core.ways import dense
from gradverify.core.ways.added import gathered
from gradverify.core.ways.claims import claimed_entries
from gradverify.core.ways.straight import straight_moves
from gradverify.core.ways.structure import Structure
from gradverify.core.ways.verified import accusations_hold, claims_hold, differences_hold, pattern_holds


def claims_under(ground: Ground, structure: Structure, settings: Settings) -> Tensor | None:
    """Return the claims of the entries that moves own, None where they are not all there is."""
    claimed = _compressed(ground, structure)
    if claimed is None or not claims_hold(ground.backward, structure.moves, claimed, settings.seed):
        return None
    return claimed


def compared_under(
    ground: Ground,
    structure: Structure,
    at: Bench,
    walk: Walk | None,
    settings: Settings,
    reconsider: Reconsider,
    *,
    verified: bool = False,
) -> Comparison | None:
    """Compare by this structure, None where it does not hold, unless that is `verified`.

    `walk` is that of the first steps, where they have been taken. Where all moves are straight lines, these have been
    added up along a random direction, as `differences_hold` would ask, and nothing is accused or has a kink.
    """
    known = None if walk is not None else straight_moves(at, settings.seed)
    looked = judge_all(at, walk, known)
    judged = [(chosen, second_look(at, ground, chosen, part, settings)) for chosen, part in looked]
    added = gathered(structure.moves, [part for _, part in judged])
    seed = settings.seed
    if (
        verified
        or is_complete(at, known)
        or (
            differences_hold(at, added, seed)
            and pattern_holds(at, added, structure, seed)
            and accusations_hold(at, added)
        )
    ):
        return tallied(at, judge_together(at, judged, seed), settings, reconsider)
    return None


def _compressed(ground: Ground, structure: Structure) -> Tensor | None:
    """Return the claims of the entries that moves own, from shared cotangents or, where they save nothing, rows."""
    claimed = claimed_entries(ground.backward, structure)
    if claimed is not None:
        return claimed
    if ground.entries > dense.LIMIT:
        return None
    rows, owner = jacobian(ground.backward), structure.moves.owner
    return torch.where(owner >= 0, rows.T.gather(0, owner.clamp(min=0)), 0.0)
