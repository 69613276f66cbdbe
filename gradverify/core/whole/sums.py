"""A wrong block too large to be looked at whole, asked with random vectors whether a pattern explains all of its error.

What is claimed in every entry is a pattern of the derivative only if u·A·v says so for random u and v that reach over
the whole block: a pattern seen in some columns alone is none.
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

_COTANGENTS = 4  # of each of the two kinds of weights
_TANGENTS = 5  # and one more that moves inputs such that they matter alike
_SHARP = 1e-8  # a bar below this part of the sum is good enough to do without closer steps
_ROUNDINGS, _ULP = 10, 4 * torch.finfo(torch.float64).eps


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """One block d of / d wrt with mismatches, and all there is to ask it with."""

    of: Block
    wrt: Block
    measured: MeasuredProblem
    found: Entries  # the wrong entries that are known
    all_places: bool  # no other input or output than those of `found` has a wrong entry
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
        """The problem, and its vjp."""
        return self.measured.backward

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.measured.sampled.value.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """Sums over all entries of a block, one per cotangent and direction."""

    value: Tensor  # (K, L)
    bar: Tensor  # (K, L)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A block with K cotangents and L directions over all of it, and what both sides say to each pair."""

    sums: Sums
    cotangents: Tensor  # (K, m)
    answers: Tensor  # (K, n)
    directions: Tensor  # (L, n)
    slopes: tuple[Estimate, ...]  # of every output along each direction
    claimed: Tensor  # (K, L)
    numeric: Summed
    rounding: Tensor  # (K, L) what adding up in backward may leave
    typical: Tensor  # (K, L) the size of an error


def ask(sums: Sums) -> Asked:
    """Ask both sides; costs 36 forwards, more where the function bends, and 8 vjps."""
    generator = torch.Generator().manual_seed(sums.seed + 5)
    measured, of, wrt = sums.measured, sums.of, sums.wrt
    within = torch.zeros_like(measured.lengths.step)
    within[wrt.coordinates] = measured.lengths.step[wrt.coordinates]
    directions = [scattered(within, generator) for _ in range(_TANGENTS)]
    plain = [slope(measured.sampled, measured.noise, direction, FIRST) for direction in directions]
    judged = torch.zeros_like(measured.sampled.value)
    judged[of.coordinates] = 1.0
    kinds = weights(measured.sampled, torch.stack([found.value for found in plain]))
    cotangents = torch.stack([scattered(weight * judged, generator) for weight in kinds for _ in range(_COTANGENTS)])
    answers = torch.stack([row(measured.backward, cotangent) for cotangent in cotangents])
    directions.append(scattered(levelled(within, answers), generator))
    known = (*plain, None)  # the last direction is new
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


def along(asked: Asked, directions: Tensor) -> tuple[Estimate, ...]:
    """Return the slopes of every output along some directions, (L, n)."""
    return tuple(steep(asked.sums.measured, asked.cotangents, direction) for direction in directions)


def scaled(found: Summed, factor: float) -> Summed:
    """Return the sums times a factor."""
    return Summed(value=factor * found.value, bar=abs(factor) * found.bar)


def steep(measured: MeasuredProblem, cotangents: Tensor, direction: Tensor, far: Estimate | None = None) -> Estimate:
    """Return the slopes along a direction, from closer steps where the function bends too much for far ones.

    `far` are those from far steps, where they are known.
    """
    best: Estimate | None = None
    least = torch.inf
    for first in (FIRST, *CLOSER):
        found = far if far is not None and first == FIRST else slope(measured.sampled, measured.noise, direction, first)
        summed = summed_up(cotangents, (found,))
        bar = float(summed.bar.sum())
        if best is None or bar < least:
            best, least = found, bar
        size = float((cotangents.square() @ found.value.nan_to_num(0.0, 0.0, 0.0).square()).sqrt().sum())
        if least <= _SHARP * size:
            break
    assert best is not None
    return best


def summed_up(cotangents: Tensor, slopes: Sequence[Estimate]) -> Summed:
    """Return the sums of the slopes along some directions, weighed by each cotangent."""
    used = (cotangents != 0).any(0)
    values = torch.stack([torch.where(used, found.value, 0.0) for found in slopes])
    bars = torch.stack([torch.where(used, found.bar, 0.0) for found in slopes])
    bar = (cotangents.square() @ bars.T.square()).sqrt()
    return Summed(value=cotangents @ values.T, bar=torch.where(torch.isfinite(bar), bar, torch.inf))
