"""Tiles in which every entry is plain: slopes by one product of matrices, and nothing that sticks out.

What the cheap pass asks of an entry at length is here asked of all at once, and more strictly: a slope as claimed,
known well enough, and no bend but that of something smooth. Where one entry of a tile is not like that, all are asked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.judging.allowance import ROUNDING
from gradverify.core.judging.compare import Judged, all_matching
from gradverify.core.judging.doubt import tells_enough
from gradverify.core.judging.tiles import Tile
from gradverify.core.numeric.series import FARTHEST, ROUNDED, bends, series_through, slope_of
from gradverify.core.numeric.walk import first_steps


def plain_entries(tile: Tile) -> tuple[Judged, Tensor]:
    """Return the verdicts on a tile walked by the steps of `richardson`, and which of its entries are plain; (C, m)."""
    sampled, claimed = tile.sampled, tile.claimed
    step = first_steps(sampled, tile.walk, tile.rows, tile.outputs)
    series = series_through(tile.walk.values[:, tile.rows, tile.outputs] - sampled.value)
    noise = torch.addcmul(tile.noise.level, series.coefficients[:2].abs().sum(dim=0), tile.noise.share)
    bent, own = bends(series, noise), claimed.abs()
    slope = slope_of(series, step, noise.addcmul_(step, own, value=FARTHEST * ROUNDED))
    error = (claimed - slope.value).abs_()
    fine = error <= torch.add(slope.bar, tile.allowance.beside, alpha=ROUNDING)
    fine.logical_and_(tells_enough(slope.bar, own, tile.allowance)).logical_and_(bent.logical_not_())
    return all_matching(slope, error, own.mul_(tile.allowance.rtol)), fine
