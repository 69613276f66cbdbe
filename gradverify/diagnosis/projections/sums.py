"""Random sums u·A·v over a wrong block A too large to hold, to test whether a pattern explains all of its error.

A pattern holds in every entry of the block only if the sums agree with it for random u and v over the whole block. That
it holds in some columns is not enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Estimate
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.strategy.random_sums import TERM_ROUNDING, best_slope, random_vectors, sums_of_slopes
from gradverify.evidence import LargeBlock

_COTANGENTS = 4  # of each of the two kinds of weights
_TANGENTS = 5  # with inputs weighted by their length scales; one more direction is weighted by their influence
_ROUNDINGS = 10  # eps of backward's dtype: rounding of a sum, of the root sum of squares of its terms


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomProjections:
    """A block with K cotangents and L directions over all of it, and both sides of the sum for each pair."""

    block: LargeBlock
    cotangents: Tensor  # (K, m)
    vjps: Tensor  # (K, n) the vjps
    directions: Tensor  # (L, n)
    slopes: tuple[Estimate, ...]  # of every output along each direction
    claimed: Tensor  # (K, L) the sums by vjps
    numeric: Estimate  # (K, L) the same, measured
    rounding: Tensor  # (K, L) bound on the rounding of sums in backward
    error_size: Tensor  # (K, L) root mean square of the errors of the sums, per kind of weights and direction


def ask(sums: LargeBlock) -> RandomProjections:
    """Return both sides of random sums over a block; costs 36 forwards, more if the function is curved, and 8 vjps."""
    generator = torch.Generator().manual_seed(sums.settings.seed + 5)
    measured = sums.measured
    lengths = zero_outside(measured.lengths.step, sums.wrt.coordinates)
    drawn = random_vectors(measured, lengths, sums.of.coordinates, _TANGENTS, _COTANGENTS, generator)
    cotangents, vjps, directions = drawn.cotangents, drawn.vjps, torch.stack(drawn.directions)
    slopes = tuple(best_slope(measured, cotangents, *each) for each in zip(directions, drawn.slopes, strict=True))
    claimed, numeric = vjps @ directions.T, sums_of_slopes(cotangents, slopes)
    error = (claimed - numeric.value).nan_to_num(0.0).reshape(2, _COTANGENTS, -1)
    size = (vjps.square() @ directions.T.square()).sqrt()
    return RandomProjections(
        block=sums,
        cotangents=cotangents,
        vjps=vjps,
        directions=directions,
        slopes=slopes,
        claimed=claimed,
        numeric=numeric,
        rounding=_ROUNDINGS * measured.sampled.eps * size + TERM_ROUNDING * vjps.abs() @ directions.T.abs(),
        error_size=error.square().mean(1, keepdim=True).sqrt().expand_as(error).reshape(claimed.shape),
    )


def slopes_along(sketch: RandomProjections, directions: Tensor) -> tuple[Estimate, ...]:
    """Return the slopes of every output along each of the directions (L, n)."""
    return tuple(best_slope(sketch.block.measured, sketch.cotangents, direction) for direction in directions)


def scaled(found: Estimate, factor: float) -> Estimate:
    """Return an estimate times a factor."""
    return Estimate(value=factor * found.value, bar=abs(factor) * found.bar)
