"""The comparison of Jacobians with a structure: shared moves and cotangents, believed only when verified."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function.analytic import jacobian
from gradverify.core.judging.bench import bench
from gradverify.core.judging.columns import judge_all
from gradverify.core.judging.ground import Ground, Reconsider, second_look
from gradverify.core.judging.tally import Comparison, tallied
from gradverify.core.judging.ties import judge_together
from gradverify.core.ways import dense
from gradverify.core.ways.added import gathered
from gradverify.core.ways.claims import claimed_entries
from gradverify.core.ways.structure import Structure, find_structure
from gradverify.core.ways.verified import accusations_hold, claims_hold, differences_hold, pattern_holds

_DEAREST = 64  # moves that are made where the alternative is to probe


def compare_by_structure(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared moves and cotangents; None where there is no structure, or it does not hold."""
    most = None if dense.affordable(ground) else _DEAREST
    structure = find_structure(ground.sampled, ground.lengths, settings.seed, most)
    if structure is None:
        return None
    claimed = _compressed(ground, structure)
    if claimed is None or not claims_hold(ground.backward, structure.moves, claimed, settings.seed):
        return None
    at = bench(ground.sampled, ground.noise, ground.lengths, structure.moves, claimed, settings)
    judged = [(chosen, second_look(at, ground, chosen, part, settings)) for chosen, part in judge_all(at)]
    added = gathered(structure.moves, [part for _, part in judged])
    seed = settings.seed
    if not (
        differences_hold(at, added, seed) and pattern_holds(at, added, structure, seed) and accusations_hold(at, added)
    ):
        return None
    return tallied(at, judge_together(at, judged, settings.seed), settings, reconsider)


def _compressed(ground: Ground, structure: Structure) -> Tensor | None:
    """Return the claims of the entries that moves own, from shared cotangents or, where they save nothing, rows."""
    claimed = claimed_entries(ground.backward, structure)
    if claimed is not None:
        return claimed
    if ground.entries > dense.LIMIT:
        return None
    rows, owner = jacobian(ground.backward), structure.moves.owner
    return torch.where(owner >= 0, rows.T.gather(0, owner.clamp(min=0)), 0.0)
