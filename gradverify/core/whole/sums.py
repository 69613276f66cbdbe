"""Random sums u·A·v over a wrong block A too large to hold, to test whether a pattern explains all of its error.

A pattern holds in every entry of the block only if the sums agree with it for random u and v over the whole block. That
it holds in some columns is not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, row
from gradverify.core.decide.context import MeasuredProblem
from gradverify.core.decide.statistics import Entries
from gradverify.core.estimate.directional import directional_derivative
from gradverify.core.estimate.samples import Estimate
from gradverify.core.model.coordinates import Block
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.strategy.random_sums import FIRST_STEP, SMALLER_STEPS, equalized_steps, weights

_COTANGENTS = 4  # of each of the two kinds of `weights`
_TANGENTS = 5  # with inputs weighted by their length scales; one more direction is `equalized_steps`
_SHARP = 1e-8  # of a sum: with an error bar below it, no smaller steps are tried
_ROUNDINGS, _ULP = 10, 4 * torch.finfo(torch.float64).eps  # eps of backward's dtype, and of float64: see `rounding`


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeBlock:
    """One block d of / d wrt with mismatches, too large to hold, and the problem that it belongs to."""

    of: Block
    wrt: Block
    measured: MeasuredProblem
    wrong_entries: Entries  # the wrong entries that are known
    wrong_places_complete: bool  # True if no other inputs and outputs have wrong entries than those in `found`
    seed: int

    @property
    def inputs(self) -> tuple[Block, ...]:
        """All inputs."""
        return self.measured.sampled.inputs

    @property
    def outputs(self) -> tuple[Block, ...]:
        """All outputs."""
        return self.measured.sampled.outputs

    @property
    def backward(self) -> Backward:
        """The problem and its vjp."""
        return self.measured.backward

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.measured.sampled.value.device


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSums:
    """Measured sums u·A·v over a block with their error bars, one per cotangent and direction."""

    value: Tensor  # (K, L)
    bar: Tensor  # (K, L)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomProjections:
    """A block with K cotangents and L directions over all of it, and both sides of the sum for each pair."""

    block: LargeBlock
    cotangents: Tensor  # (K, m)
    vjps: Tensor  # (K, n) the vjps
    directions: Tensor  # (L, n)
    slopes: tuple[Estimate, ...]  # of every output along each direction
    claimed: Tensor  # (K, L) the sums by vjps
    numeric: MeasuredSums
    rounding: Tensor  # (K, L) bound on the rounding of sums in backward
    error_size: Tensor  # (K, L) root mean square of the errors of the sums, per kind of weights and direction


def ask(sums: LargeBlock) -> RandomProjections:
    """Return both sides of random sums over a block; costs 36 forwards, more if the function is curved, and 8 vjps."""
    generator = torch.Generator().manual_seed(sums.seed + 5)
    measured, of, wrt = sums.measured, sums.of, sums.wrt
    lengths = torch.zeros_like(measured.lengths.step)
    lengths[wrt.coordinates] = measured.lengths.step[wrt.coordinates]
    directions = [random_magnitudes(lengths, generator) for _ in range(_TANGENTS)]
    first_slopes = [
        directional_derivative(measured.sampled, measured.noise, direction, FIRST_STEP) for direction in directions
    ]
    in_block = torch.zeros_like(measured.sampled.value)
    in_block[of.coordinates] = 1.0
    kinds = weights(measured.sampled, torch.stack([found.value for found in first_slopes]))
    cotangents = torch.stack(
        [random_magnitudes(weight * in_block, generator) for weight in kinds for _ in range(_COTANGENTS)]
    )
    answers = torch.stack([row(measured.backward, cotangent) for cotangent in cotangents])
    directions.append(random_magnitudes(equalized_steps(lengths, answers), generator))
    known = (*first_slopes, None)  # the slopes along the last direction are not known yet
    slopes = tuple(best_slope(measured, cotangents, *each) for each in zip(directions, known, strict=True))
    stacked = torch.stack(directions)
    claimed, numeric = answers @ stacked.T, sums_of_slopes(cotangents, slopes)
    error = (claimed - numeric.value).nan_to_num(0.0).reshape(2, _COTANGENTS, -1)
    size = (answers.square() @ stacked.T.square()).sqrt()
    return RandomProjections(
        block=sums,
        cotangents=cotangents,
        vjps=answers,
        directions=stacked,
        slopes=slopes,
        claimed=claimed,
        numeric=numeric,
        rounding=_ROUNDINGS * measured.sampled.eps * size + _ULP * answers.abs() @ stacked.T.abs(),
        error_size=error.square().mean(1, keepdim=True).sqrt().expand_as(error).reshape(claimed.shape),
    )


def slopes_along(sketch: RandomProjections, directions: Tensor) -> tuple[Estimate, ...]:
    """Return the slopes of every output along each of the directions (L, n)."""
    return tuple(best_slope(sketch.block.measured, sketch.cotangents, direction) for direction in directions)


def scaled(found: MeasuredSums, factor: float) -> MeasuredSums:
    """Return the sums times a factor."""
    return MeasuredSums(value=factor * found.value, bar=abs(factor) * found.bar)


def best_slope(
    measured: MeasuredProblem, cotangents: Tensor, direction: Tensor, known: Estimate | None = None
) -> Estimate:
    """Return the slopes along a direction, from smaller steps if curvature spoils the larger ones.

    `known` are those from the first, largest steps, if they have been computed.
    """
    best: Estimate | None = None
    smallest = torch.inf
    for first in (FIRST_STEP, *SMALLER_STEPS):
        found = (
            known
            if known is not None and first == FIRST_STEP
            else directional_derivative(measured.sampled, measured.noise, direction, first)
        )
        summed = sums_of_slopes(cotangents, (found,))
        bar = float(summed.bar.sum())
        if best is None or bar < smallest:
            best, smallest = found, bar
        size = float((cotangents.square() @ found.value.nan_to_num(0.0, 0.0, 0.0).square()).sqrt().sum())
        if smallest <= _SHARP * size:
            break
    assert best is not None
    return best


def sums_of_slopes(cotangents: Tensor, slopes: Sequence[Estimate]) -> MeasuredSums:
    """Return the slopes along some directions summed with the weights of each cotangent."""
    used = (cotangents != 0).any(0)
    values = torch.stack([torch.where(used, found.value, 0.0) for found in slopes])
    bars = torch.stack([torch.where(used, found.bar, 0.0) for found in slopes])
    bar = (cotangents.square() @ bars.T.square()).sqrt()
    return MeasuredSums(value=cotangents @ values.T, bar=torch.where(torch.isfinite(bar), bar, torch.inf))
