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
from gradverify.core.estimate.directional import slope
from gradverify.core.estimate.samples import Estimate
from gradverify.core.model.coordinates import Block
from gradverify.core.model.generators import scattered
from gradverify.core.strategy.random_sums import CLOSER, FIRST, levelled, weights

_COTANGENTS = 4  # of each of the two kinds of `weights`
_TANGENTS = 5  # with inputs weighted by their length scales; one more direction is `levelled`
_SHARP = 1e-8  # of a sum: with an error bar below it, no smaller steps are tried
_ROUNDINGS, _ULP = 10, 4 * torch.finfo(torch.float64).eps  # eps of backward's dtype, and of float64: see `rounding`


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """One block d of / d wrt with mismatches, too large to hold, and the problem that it belongs to."""

    of: Block
    wrt: Block
    measured: MeasuredProblem
    found: Entries  # the wrong entries that are known
    all_places: bool  # True if no other inputs and outputs have wrong entries than those in `found`
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
class Summed:
    """Measured sums u·A·v over a block with their error bars, one per cotangent and direction."""

    value: Tensor  # (K, L)
    bar: Tensor  # (K, L)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A block with K cotangents and L directions over all of it, and both sides of the sum for each pair."""

    sums: Sums
    cotangents: Tensor  # (K, m)
    answers: Tensor  # (K, n) the vjps
    directions: Tensor  # (L, n)
    slopes: tuple[Estimate, ...]  # of every output along each direction
    claimed: Tensor  # (K, L) the sums by vjps
    numeric: Summed
    rounding: Tensor  # (K, L) bound on the rounding of sums in backward
    typical: Tensor  # (K, L) root mean square of the errors of the sums, per kind of weights and direction


def ask(sums: Sums) -> Asked:
    """Return both sides of random sums over a block; costs 36 forwards, more if the function is curved, and 8 vjps."""
    generator = torch.Generator().manual_seed(sums.seed + 5)
    measured, of, wrt = sums.measured, sums.of, sums.wrt
    lengths = torch.zeros_like(measured.lengths.step)
    lengths[wrt.coordinates] = measured.lengths.step[wrt.coordinates]
    directions = [scattered(lengths, generator) for _ in range(_TANGENTS)]
    first_slopes = [slope(measured.sampled, measured.noise, direction, FIRST) for direction in directions]
    in_block = torch.zeros_like(measured.sampled.value)
    in_block[of.coordinates] = 1.0
    kinds = weights(measured.sampled, torch.stack([found.value for found in first_slopes]))
    cotangents = torch.stack([scattered(weight * in_block, generator) for weight in kinds for _ in range(_COTANGENTS)])
    answers = torch.stack([row(measured.backward, cotangent) for cotangent in cotangents])
    directions.append(scattered(levelled(lengths, answers), generator))
    known = (*first_slopes, None)  # the slopes along the last direction are not known yet
    slopes = tuple(steep(measured, cotangents, *each) for each in zip(directions, known, strict=True))
    stacked = torch.stack(directions)
    claimed, numeric = answers @ stacked.T, summed_up(cotangents, slopes)
    error = (claimed - numeric.value).nan_to_num(0.0).reshape(2, _COTANGENTS, -1)
    size = (answers.square() @ stacked.T.square()).sqrt()
    return Asked(
        sums=sums,
        cotangents=cotangents,
        answers=answers,
        directions=stacked,
        slopes=slopes,
        claimed=claimed,
        numeric=numeric,
        rounding=_ROUNDINGS * measured.sampled.eps * size + _ULP * answers.abs() @ stacked.T.abs(),
        typical=error.square().mean(1, keepdim=True).sqrt().expand_as(error).reshape(claimed.shape),
    )


def along(sketch: Asked, directions: Tensor) -> tuple[Estimate, ...]:
    """Return the slopes of every output along each of the directions (L, n)."""
    return tuple(steep(sketch.sums.measured, sketch.cotangents, direction) for direction in directions)


def scaled(found: Summed, factor: float) -> Summed:
    """Return the sums times a factor."""
    return Summed(value=factor * found.value, bar=abs(factor) * found.bar)


def steep(measured: MeasuredProblem, cotangents: Tensor, direction: Tensor, known: Estimate | None = None) -> Estimate:
    """Return the slopes along a direction, from smaller steps if curvature spoils the larger ones.

    `known` are those from the first, largest steps, if they have been computed.
    """
    best: Estimate | None = None
    smallest = torch.inf
    for first in (FIRST, *CLOSER):
        found = (
            known if known is not None and first == FIRST else slope(measured.sampled, measured.noise, direction, first)
        )
        summed = summed_up(cotangents, (found,))
        bar = float(summed.bar.sum())
        if best is None or bar < smallest:
            best, smallest = found, bar
        size = float((cotangents.square() @ found.value.nan_to_num(0.0, 0.0, 0.0).square()).sqrt().sum())
        if smallest <= _SHARP * size:
            break
    assert best is not None
    return best


def summed_up(cotangents: Tensor, slopes: Sequence[Estimate]) -> Summed:
    """Return the slopes along some directions summed with the weights of each cotangent."""
    used = (cotangents != 0).any(0)
    values = torch.stack([torch.where(used, found.value, 0.0) for found in slopes])
    bars = torch.stack([torch.where(used, found.bar, 0.0) for found in slopes])
    bar = (cotangents.square() @ bars.T.square()).sqrt()
    return Summed(value=cotangents @ values.T, bar=torch.where(torch.isfinite(bar), bar, torch.inf))
