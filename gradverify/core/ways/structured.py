"""The comparison of Jacobians with a structure: shared moves and cotangents, believed only when verified."""

from __future__ import annotations

import time

import torch

from gradverify.case import Settings
from gradverify.core.function.sampler import Sampler, along
from gradverify.core.judging.bench import bench
from gradverify.core.judging.ground import Ground, Reconsider
from gradverify.core.judging.tally import Comparison
from gradverify.core.ways import dense
from gradverify.core.ways.elementwise import compare_entry_by_entry
from gradverify.core.ways.hypothesis import claims_under, compared_under
from gradverify.core.ways.structure import find_structure

_DEAREST = 64  # moves that are made where the alternative is to probe
_NUMBERS = 1 << 23  # in the inputs and outputs of all moves: up to so many, there may be more of them
_LONG = 1e-2  # seconds of one call: with those that take longer, there may not


def compare_by_structure(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared moves and cotangents; None where there is no structure, or it does not hold."""
    compared = compare_entry_by_entry(ground, settings, reconsider)
    if compared is not None:
        return compared
    structure = find_structure(ground.sampled, ground.lengths, settings.seed, _worth(ground))
    if structure is None:
        return None
    claimed = claims_under(ground, structure, settings)
    if claimed is None:
        return None
    at = bench(ground.sampled, ground.noise, ground.lengths, structure.moves, claimed, settings)
    return compared_under(ground, structure, at, None, settings, reconsider)


def _worth(ground: Ground) -> int | None:
    """Return how many moves a structure may need, None for as many as are fewer than those of all coordinates."""
    if dense.affordable(ground):
        return None
    sampled = ground.sampled
    small = _NUMBERS // (len(sampled.point) + len(sampled.value))
    return _DEAREST if small <= _DEAREST or _takes_long(sampled) else small


def _takes_long(sampled: Sampler) -> bool:
    """Tell whether a forward takes so long that hundreds of them are not made, however small it is."""
    if not sampled.together.slow:
        return False
    begun = time.thread_time()  # the first call may have been slow for other reasons
    along(sampled, torch.zeros_like(sampled.point))
    return time.thread_time() - begun > _LONG
