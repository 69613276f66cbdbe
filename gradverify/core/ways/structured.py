"""The comparison of Jacobians with a structure: shared moves and cotangents, believed only when verified."""

from __future__ import annotations

from gradverify.case import Settings
from gradverify.core.function.duration import seconds
from gradverify.core.judging.bench import bench
from gradverify.core.judging.ground import Ground, Reconsider
from gradverify.core.judging.tally import Comparison
from gradverify.core.ways import dense
from gradverify.core.ways.elementwise import compare_entry_by_entry
from gradverify.core.ways.hypothesis import claims_under, compared_under
from gradverify.core.ways.structure import find_structure

_DEAREST = 64  # moves that are made where the alternative is to probe
_NUMBERS = 1 << 23  # in the inputs and outputs of all moves: where sums agree, there may be so many of them
_SECONDS, _SAMPLES = 2.0, 6  # that they may take, if each is sampled so often, one at a time


def compare_by_structure(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared moves and cotangents; None where there is no structure, or it does not hold."""
    compared = compare_entry_by_entry(ground, settings, reconsider)
    if compared is not None:
        return compared
    return _compared(ground, settings, reconsider, None if dense.affordable(ground) else _DEAREST)


def compare_closely(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare entry by entry what sums agree about, by a structure of more moves, as long as these are small together.

    None where there is none, it does not hold, or would take too long. Where sums are off, this would too: all entries
    may be wrong, and each be looked at closely.
    """
    sampled = ground.sampled
    most = _NUMBERS // (len(sampled.point) + len(sampled.value))
    if most <= _DEAREST:
        return None
    most = min(most, int(_SECONDS / (_SAMPLES * seconds(sampled))))
    return _compared(ground, settings, reconsider, most) if most > _DEAREST else None


def _compared(ground: Ground, settings: Settings, reconsider: Reconsider, most: int | None) -> Comparison | None:
    structure = find_structure(ground.sampled, ground.lengths, settings.seed, most)
    if structure is None:
        return None
    claimed = claims_under(ground, structure, settings)
    if claimed is None:
        return None
    at = bench(ground.sampled, ground.noise, ground.lengths, structure.moves, claimed, settings)
    return compared_under(ground, structure, at, None, settings, reconsider)
