"""Stratified random quantiles: one per stratum of equal probability, in random order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

# Bounds of quantiles: the inverse distribution function may be infinite at 0 and 1.
_LOWEST, _HIGHEST = 2.0**-54, 1 - 2.0**-53
_MIN_PROBABILITY = 1e-3  # a piece between breaks with less probability need not be covered


def strata(count: int, generator: torch.Generator, *, jitter: float = 1.0) -> Tensor:
    """Return `count` float64 quantiles in (0, 1), one in each of `count` equal strata, in random order.

    `jitter` is the share of a stratum, around its midpoint, that the quantile may lie in: 1 the whole stratum, 0 the
    midpoint. Two quantiles differ by at least `(1 - jitter) / count`.
    """
    order = torch.randperm(count, generator=generator, dtype=torch.int64)
    inside = torch.rand(count, generator=generator, dtype=torch.float64)
    quantiles = (order + 0.5 + jitter * (inside - 0.5)) / max(count, 1)
    return quantiles.clamp(_LOWEST, _HIGHEST)


def cover(quantiles: Tensor, breaks: Iterable[float], generator: torch.Generator) -> Tensor:
    """Return flat `quantiles` with at least one in each piece between `breaks`, if there are enough.

    A function may be defined differently on each piece, and strata that a break divides may leave a piece without a
    quantile. Then the nearest quantile that is not the only one in its piece is moved there.
    """
    edges = [0.0, *sorted({point for point in breaks if 0 < point < 1}), 1.0]
    if len(edges) == 2:
        return quantiles
    inner = torch.tensor(edges[1:-1], dtype=torch.float64)
    covered = quantiles.clone()
    for piece, (low, high) in enumerate(pairwise(edges)):
        pieces = torch.bucketize(covered, inner, right=True)
        movable = pieces.bincount(minlength=len(edges) - 1)[pieces] > 1
        if high - low < _MIN_PROBABILITY or bool((pieces == piece).any()) or not bool(movable.any()):
            continue
        middle = (low + high) / 2
        nearest = torch.where(movable, (covered - middle).abs(), torch.inf).argmin()
        inside = float(torch.rand((), generator=generator, dtype=torch.float64))
        covered[nearest] = low + (high - low) * (0.25 + inside / 2)
    return covered.clamp(_LOWEST, _HIGHEST)
