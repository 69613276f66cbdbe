"""Random sums u·A·v over a wrong block A too large to hold, to test whether a pattern explains all of its error.

A pattern holds in every entry of the block only if the sums agree with it for random u and v over the whole block. That
it holds in some columns is not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.backward.vjps import flat_vjp
from gradverify.core.decide.compare import relative_tolerance
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.coordinates import Block, total, zero_outside
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.strategy.random_sums import TERM_ROUNDING, best_slope, random_vectors, sums_of_slopes
from gradverify.diagnosis.block.entries import CAP, CLOSE, ROUNDINGS, BlockEntries, Pattern, Ratio, typical_ratio
from gradverify.diagnosis.naming.constants import cotangents_in_words
from gradverify.diagnosis.naming.variables import Axis, block_along
from gradverify.evidence import LargeBlock

_COTANGENTS = 4  # of each of the two kinds of weights
_TANGENTS = 5  # with inputs weighted by their length scales; one more direction is weighted by their influence
_RANDOM = 16  # sampled columns, and rows, that are chosen at random
_KNOWN = 8  # sampled columns, and rows, that are known to be wrong
_EVERY = slice(None)
_SHOWS = 0.5  # of the values compared: if more is allowed, an error might not show


@dataclass(frozen=True, kw_only=True)
class BothSides:
    """Some sums by vjps, and the same sums measured."""

    claimed: Tensor  # (K, L) for K cotangents and L directions, unless a subclass says otherwise
    numeric: Estimate

    def ratio(self) -> Ratio | None:
        """Return the median of claimed / numeric over the best measured sums; None if no sum is finite and nonzero."""
        return typical_ratio(self.claimed, self.numeric.value, self.numeric.bar)


@dataclass(frozen=True, kw_only=True)
class SampledLine(BothSides):
    """One column of the block summed with the cotangents, (K,), or one row summed along the directions, (L,)."""

    position: int  # position of the input, or output, in the block
    wrong: bool
    right: bool  # both False if an error might not show
    entries: Estimate | None = None  # (m,) the measured entries of a column; a row's are not measured one by one


@dataclass(frozen=True, kw_only=True)
class RandomProjections(BothSides):
    """A block with K cotangents and L directions over all of it, and both sides of the sum for each pair."""

    block: LargeBlock
    cotangents: Tensor  # (K, m)
    weights: Tensor  # (K, outputs) the cotangents of the block's output
    vjps: Tensor  # (K, n) the vjps
    gradients: Tensor  # (K, inputs) the vjps by the block's input
    directions: Tensor  # (L, n)
    displacements: Tensor  # (L, inputs) the directions of the block's input
    slopes: tuple[Estimate, ...]  # of every output along each direction
    rounding: Tensor  # (K, L) bound on the rounding of sums in backward
    error_size: Tensor  # (K, L) root mean square of the errors of the sums, per kind of weights and direction
    nonzero: None = None  # single entries are not known

    def agrees(self, pattern: Pattern) -> float | None:
        """Return 1 if the pattern holds in the whole block, else None.

        Costs forwards only if it changes columns, and none after the first direction that contradicts it.
        """
        one_by_one = (slice(at, at + 1) for at in range(len(self.directions)))
        fits = (holds(self, _predicted_sums(self, pattern, along), along=along) for along in one_by_one)
        return 1.0 if all(fits) else None

    def shows_constant(self, constant: Tensor) -> bool:
        """True if `constant` (n,), added to every gradient, is a visible part of the errors."""
        return any_set((self.displacements @ constant).abs() > CLOSE * self.error_size)

    def multiple_of_cotangent(self, inputs: Tensor) -> str | None:
        """Return "cotangent", or "3 × cotangent", if backward returns one multiple of it by `inputs` (n,) bool."""
        if self.block.of.shape != self.block.wrt.shape:
            return None
        given = self.weights[:, inputs]
        return cotangents_in_words((self.gradients[:, inputs] / given)[given != 0])

    def over(self, of: Block, wrt: Block) -> RandomProjections:
        """Return random sums over other tensors; costs as much as `ask`."""
        return ask(replace(self.block, of=of, wrt=wrt))

    @cached_property
    def columns(self) -> tuple[SampledLine, ...]:
        """A sample of the columns: `random_count` random ones first; each costs 6 forwards or more."""
        return tuple(line(self, Axis.INPUT, place) for place in self._sample(Axis.INPUT))

    @cached_property
    def rows(self) -> tuple[SampledLine, ...]:
        """A sample of the rows: `random_count` random ones first; each costs a vjp."""
        return tuple(line(self, Axis.OUTPUT, place) for place in self._sample(Axis.OUTPUT))

    @property
    def random_count(self) -> int:
        """The number of sampled columns, and of rows, that were chosen at random."""
        return min(_RANDOM, total(self.block.of.shape), total(self.block.wrt.shape))

    def _sample(self, axis: Axis) -> list[int]:
        """Return positions along an axis: random ones, wrong ones, and the first, middle and last."""
        block, found = block_along(self.block, axis), self.block.wrong_entries
        generator = torch.Generator().manual_seed(self.block.settings.seed + 6 + axis.value)
        size, known = total(block.shape), found.inputs if axis is Axis.INPUT else found.outputs
        picked = torch.randperm(size, generator=generator)[: self.random_count].tolist()
        return list(dict.fromkeys([*picked, *known.tolist()[:_KNOWN], 0, size // 2, size - 1]))


ComparedBlock = BlockEntries | RandomProjections  # of a block that is held, or of one that is too large


def ask(block: LargeBlock) -> RandomProjections:
    """Return both sides of random sums over a block; costs 36 forwards, more if the function is curved, and 8 vjps."""
    generator = torch.Generator().manual_seed(block.settings.seed + 5)
    measured = block.measured
    lengths = zero_outside(measured.lengths.step, block.wrt.coordinates)
    drawn = random_vectors(measured, lengths, block.of.coordinates, _TANGENTS, _COTANGENTS, generator)
    cotangents, vjps, directions = drawn.cotangents, drawn.vjps, torch.stack(drawn.directions)
    slopes = tuple(best_slope(measured, cotangents, *each) for each in zip(directions, drawn.slopes, strict=True))
    claimed, numeric = vjps @ directions.T, sums_of_slopes(cotangents, slopes)
    error = (claimed - numeric.value).nan_to_num(0.0).reshape(2, _COTANGENTS, -1)
    size = (vjps.square() @ directions.T.square()).sqrt()  # root sum of squares of the terms of each sum
    return RandomProjections(
        block=block,
        cotangents=cotangents,
        weights=cotangents[:, block.of.coordinates],
        vjps=vjps,
        gradients=vjps[:, block.wrt.coordinates],
        directions=directions,
        displacements=directions[:, block.wrt.coordinates],
        slopes=slopes,
        claimed=claimed,
        numeric=numeric,
        rounding=ROUNDINGS * measured.sampled.gradient_eps * size + TERM_ROUNDING * vjps.abs() @ directions.T.abs(),
        error_size=error.square().mean(1, keepdim=True).sqrt().expand_as(error).reshape(claimed.shape),
    )


def slopes_along(projections: RandomProjections, directions: Tensor) -> tuple[Estimate, ...]:
    """Return the slopes of every output along each of the directions (L, n)."""
    return tuple(best_slope(projections.block.measured, projections.cotangents, direction) for direction in directions)


def scaled(found: Estimate, factor: float) -> Estimate:
    """Return an estimate times a factor."""
    return Estimate(value=factor * found.value, bar=abs(factor) * found.bar)


def _predicted_sums(projections: RandomProjections, pattern: Pattern, along: slice) -> Estimate:
    """Return the sums along some directions that the pattern predicts; costs forwards only if it changes columns."""
    weighted = projections.weights if pattern.by_row is None else projections.weights * pattern.by_row
    cotangents = _placed(projections, Axis.OUTPUT, weighted, pattern.rows)
    slopes = projections.slopes[along]
    if pattern.columns is not None or pattern.by_column is not None:
        displacements = projections.displacements[along]
        displacements = displacements if pattern.by_column is None else displacements * pattern.by_column
        slopes = slopes_along(projections, _placed(projections, Axis.INPUT, displacements, pattern.columns))
    predicted = scaled(sums_of_slopes(cotangents, slopes), pattern.factor)
    if pattern.constant is None:
        return predicted
    return replace(predicted, value=predicted.value + (projections.displacements @ pattern.constant)[along])


def transposed_sums(projections: RandomProjections) -> Estimate:
    """Return the sums that are predicted if the transposed Jacobian is claimed; costs 48 forwards or more."""
    measured, cotangents = projections.block.measured, _placed(projections, Axis.OUTPUT, projections.displacements)
    slopes = []
    for direction in _placed(projections, Axis.INPUT, projections.weights):
        scale = float((direction.abs() / measured.lengths.step).max())
        slopes.append(scaled(best_slope(measured, cotangents, direction / scale), scale))
    transposed = sums_of_slopes(cotangents, slopes)
    return Estimate(value=transposed.value.T, bar=transposed.bar.T)


def holds(
    projections: RandomProjections, found: Estimate, claimed: Tensor | None = None, along: slice = _EVERY
) -> bool:
    """True if backward's sums along some directions are the predicted ones `found`, within measurement and rounding.

    `claimed` are other sums by vjps, in place of those over the block.
    """
    sums = projections.claimed[:, along] if claimed is None else claimed
    rounding, error_size = projections.rounding[:, along], projections.error_size[:, along]
    slack = torch.minimum(BAR_FACTOR * found.bar + rounding, CAP * error_size)
    return all_set((sums - found.value).abs() <= slack + CLOSE * error_size)


@dataclass(frozen=True, kw_only=True)
class ProjectedPart(BothSides):
    """Both sides of the sums over the entries of some inputs or outputs of a block."""

    whole: RandomProjections

    def is_right_outside(self) -> bool:
        """True if both sides of the sums over all other entries agree."""
        whole = self.whole.numeric
        outside = Estimate(value=whole.value - self.numeric.value, bar=whole.bar + self.numeric.bar)
        return holds(self.whole, outside, self.whole.claimed - self.claimed)

    def share(self, factor: float | None) -> float | None:
        """Return 1 if these entries alone are wrong, by a factor; None for any error."""
        fits = factor is None or holds(self.whole, scaled(self.numeric, factor), self.claimed)
        return 1.0 if fits and self.is_right_outside() else None


def sums_over(projections: RandomProjections, axis: Axis, inside: Tensor) -> ProjectedPart:
    """Return the sums over the inputs in a mask (k,), for 36 forwards or more, or over such outputs, for 8 vjps."""
    if axis is Axis.INPUT:
        directions = _placed(projections, axis, projections.displacements * inside)
        numeric = sums_of_slopes(projections.cotangents, slopes_along(projections, directions))
        return ProjectedPart(whole=projections, claimed=projections.vjps @ directions.T, numeric=numeric)
    cotangents = _placed(projections, axis, projections.weights * inside)
    vjps = torch.stack([flat_vjp(projections.block.backward, cotangent) for cotangent in cotangents])
    numeric = sums_of_slopes(cotangents, projections.slopes)
    return ProjectedPart(whole=projections, claimed=vjps @ projections.directions.T, numeric=numeric)


def line(projections: RandomProjections, axis: Axis, place: int) -> SampledLine:
    """Return the column, or row, of the block at a position; a column costs 6 forwards or more, a row a vjp."""
    measured, block, entries = projections.block.measured, block_along(projections.block, axis), None
    coordinate = block.start + place * block.step
    if axis is Axis.INPUT:
        step = measured.lengths.step[coordinate]
        found = best_slope(measured, projections.cotangents, zero_outside(measured.lengths.step, coordinate))
        entries = Estimate(value=found.value / step, bar=found.bar / step)
        claimed, summed = projections.vjps[:, coordinate], sums_of_slopes(projections.cotangents, (entries,))  # (K, 1)
    else:
        cotangent = torch.zeros_like(projections.cotangents[0])
        cotangent[coordinate] = 1.0
        claimed = projections.directions @ flat_vjp(measured.backward, cotangent)
        summed = sums_of_slopes(cotangent.unsqueeze(0), projections.slopes)  # (1, L)
    numeric = Estimate(value=summed.value.reshape(-1), bar=summed.bar.reshape(-1))
    rtol = relative_tolerance(Tolerances(), measured.sampled.dtypes)
    size = torch.maximum(claimed.abs(), numeric.value.abs())
    error, allowed = (claimed - numeric.value).abs(), BAR_FACTOR * numeric.bar + rtol * size.max()
    within, visible = all_set(error <= allowed), any_set(allowed <= _SHOWS * size)
    return SampledLine(
        position=place,
        claimed=claimed,
        numeric=numeric,
        wrong=any_set(error > allowed),
        right=within and (visible or not any_set(size)),
        entries=entries,
    )


def sums_over_lines(projections: RandomProjections, axis: Axis, found: Sequence[SampledLine]) -> ProjectedPart:
    """Return the sums over the entries of a few inputs from their columns, or of a few outputs from their rows."""
    vectors = projections.displacements if axis is Axis.INPUT else projections.weights
    factors = vectors[:, [line.position for line in found]]  # (L, c) or (K, r)
    claimed = factors @ torch.stack([line.claimed for line in found])
    value = factors @ torch.stack([line.numeric.value for line in found])
    bar = factors.abs() @ torch.stack([line.numeric.bar for line in found])
    if axis is Axis.INPUT:
        claimed, value, bar = claimed.T, value.T, bar.T
    return ProjectedPart(whole=projections, claimed=claimed, numeric=Estimate(value=value, bar=bar))


def _placed(projections: RandomProjections, axis: Axis, values: Tensor, places: Tensor | None = None) -> Tensor:
    """Return zero vectors over all inputs, or outputs, with `values` in the block or added at coordinates `places`."""
    like = projections.directions if axis is Axis.INPUT else projections.cotangents
    whole = like.new_zeros(len(values), like.shape[1])
    if places is not None:
        return whole.index_add_(1, places, values)
    whole[:, block_along(projections.block, axis).coordinates] = values
    return whole
