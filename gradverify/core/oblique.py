"""Kinks that no coordinate axis shows: ties in a sort, norms of differences, maxima over pairs.

At such a point the derivatives along the axes may all exist while the function is not differentiable: they do not
add up to its derivatives along other directions. What backward returns is the derivative of one of the smooth pieces
that meet there. So before an entry is accused that no axis shows to be on a kink, its output is tried for additivity,
and if it fails, the pieces are looked up: the derivatives at points close by span the values that are accepted
(Clarke's generalised gradient; F. H. Clarke, Optimization and Nonsmooth Analysis, 1983, section 2.5).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.columns import Bench
from gradverify.core.compare import Code, Judged
from gradverify.core.sampler import along

_TRIALS = 3  # pairs of random directions whose derivatives should add up
_SHORT, _SHORTER = 2.0**-36, 2.0**-40  # steps of these trials, relative to the length scale
_BROKEN = 1e-3  # a sum off by this part of its terms, at both steps, is no rounding
_NEIGHBOURS = 8  # points close by whose derivatives are looked up
_DISTANCE = 2.0**-30  # of these points, relative to the length scale
_STEP = 2.0**-34  # of the differences there, well inside one smooth piece
_COLUMNS = 64  # coordinates looked up, at most
_AUDIBLE = 8.0  # how far above the noise a difference must stand


def excuse_oblique(at: Bench, chosen: Tensor, judged: Judged, seed: int) -> Judged:
    """Turn accusations that lie between the derivatives of the pieces meeting at an oblique kink into kinks."""
    accused = (judged.code == Code.MISMATCH) & ~judged.kinked
    if not bool(accused.any()):
        return judged
    generator = torch.Generator().manual_seed(seed)
    accused = accused & _not_additive(at, generator)
    code = judged.code.clone()
    owner = at.moves.owner[chosen]
    for column in torch.unique(owner[accused]).tolist()[:_COLUMNS]:
        low, high = _pieces(at, column, generator)
        margin = judged.allowed + _AUDIBLE * at.noise.level / (_STEP * _length(at)[column])
        claimed = at.claimed[chosen]
        inside = (claimed >= low - margin) & (claimed <= high + margin) & (high - low > margin)
        code[accused & inside & (owner == column)] = Code.KINK
    return replace(judged, code=code)


def _not_additive(at: Bench, generator: torch.Generator) -> Tensor:
    """Tell for each output whether derivatives along directions fail to add up to that along their sum; (m,)."""
    found = torch.zeros_like(at.sampled.value, dtype=torch.bool)
    for _ in range(_TRIALS):
        one, other = _random(at, generator), _random(at, generator)
        found |= _broken(at, one, other, _SHORT) & _broken(at, one, other, _SHORTER)
    return found


def _broken(at: Bench, one: Tensor, other: Tensor, step: float) -> Tensor:
    slopes = [
        (along(at.sampled, direction * step) - along(at.sampled, direction * -step)) / (2 * step)
        for direction in (one, other, one + other)
    ]
    size = torch.stack(slopes).abs().amax(dim=0)
    return (slopes[0] + slopes[1] - slopes[2]).abs() > _BROKEN * size + _AUDIBLE * at.noise.level / step


def _pieces(at: Bench, column: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest derivative by one coordinate at random points close by, each (m,)."""
    step = torch.zeros_like(at.sampled.point)
    step[column] = _length(at)[column] * _STEP
    slopes = []
    for _ in range(_NEIGHBOURS):
        neighbour = _random(at, generator) * _DISTANCE
        rise = along(at.sampled, neighbour + step) - along(at.sampled, neighbour - step)
        slopes.append(rise / (2 * step[column]))
    stacked = torch.stack(slopes)
    return stacked.amin(dim=0), stacked.amax(dim=0)


def _random(at: Bench, generator: torch.Generator) -> Tensor:
    values = torch.randn(at.sampled.point.shape, generator=generator, dtype=torch.float64)
    return values.to(at.sampled.point.device) * _length(at)


def _length(at: Bench) -> Tensor:
    return torch.where(at.lengths.own > 0, at.lengths.own, at.lengths.shared)
