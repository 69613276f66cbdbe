"""The comparison of Jacobians with a structure: shared moves and cotangents, believed only when verified."""

from __future__ import annotations

from gradverify.case import Settings
from gradverify.core.judging.bench import bench
from gradverify.core.judging.ground import Ground, Reconsider
from gradverify.core.judging.tally import Comparison
from gradverify.core.ways import dense
from gradverify.core.ways.elementwise import compare_entry_by_entry
from gradverify.core.ways.hypothesis import claims_under, compared_under
from gradverify.core.ways.structure import find_structure

_DEAREST = 64  # moves that are made where the alternative is to probe


def compare_by_structure(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared moves and cotangents; None where there is no structure, or it does not hold."""
    compared = compare_entry_by_entry(ground, settings, reconsider)
    if compared is not None:
        return compared
    most = None if dense.affordable(ground) else _DEAREST
    structure = find_structure(ground.sampled, ground.lengths, settings.seed, most)
    if structure is None:
        return None
    claimed = claims_under(ground, structure, settings)
    if claimed is None:
        return None
    at = bench(ground.sampled, ground.noise, ground.lengths, structure.moves, claimed, settings)
    return compared_under(ground, structure, at, None, settings, reconsider)
