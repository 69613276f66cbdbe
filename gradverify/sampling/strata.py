"""Stratified random numbers: one per stratum of equal probability, in random order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

# Open at both ends, so that the inverse of a distribution function never meets 0 or 1.
_LOWEST, _HIGHEST = 2.0**-54, 1 - 2.0**-53
_NARROWEST = 1e-3  # probability of a piece that is worth a value of its own


def strata(count: int, generator: torch.Generator, *, jitter: float = 1.0) -> Tensor:
    """Return `count` float64 quantiles in (0, 1), one in each of `count` equal strata.

    `jitter` is the share of its stratum that a quantile may lie in: 1 all of it, 0 the midpoint alone, and between
    them two quantiles stay at least `(1 - jitter) / count` apart.
    """
    order = torch.randperm(count, generator=generator, dtype=torch.int64)
    inside = torch.rand(count, generator=generator, dtype=torch.float64)
    quantiles = (order + 0.5 + jitter * (inside - 0.5)) / max(count, 1)
    return quantiles.clamp(_LOWEST, _HIGHEST)


def cover(quantiles: Tensor, breaks: Iterable[float], generator: torch.Generator) -> Tensor:
    """Return flat `quantiles` with at least one in each piece between `breaks`, as far as there are enough of them.

    The pieces are where a function may be defined differently; a stratum that a break divides may miss one of them.
    The nearest quantile that is not the only one of its piece is moved.
    """
    edges = [0.0, *sorted({point for point in breaks if 0 < point < 1}), 1.0]
    if len(edges) == 2:
        return quantiles
    inner = torch.tensor(edges[1:-1], dtype=torch.float64)
    covered = quantiles.clone()
    for piece, (low, high) in enumerate(pairwise(edges)):
        pieces = torch.bucketize(covered, inner, right=True)
        movable = pieces.bincount(minlength=len(edges) - 1)[pieces] > 1
        if high - low < _NARROWEST or bool((pieces == piece).any()) or not bool(movable.any()):
            continue
        middle = (low + high) / 2
        nearest = torch.where(movable, (covered - middle).abs(), torch.inf).argmin()
        inside = float(torch.rand((), generator=generator, dtype=torch.float64))
        covered[nearest] = low + (high - low) * (0.25 + inside / 2)
    return covered.clamp(_LOWEST, _HIGHEST)
