"""Patterns of a wrong block tested by random sums over it, or over parts of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.backward.vjps import row
from gradverify.core.decide.context import MeasuredProblem
from gradverify.core.decide.tolerance import relative_tolerance
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.coordinates import Block
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.whole.sums import MeasuredSums, RandomProjections, best_slope, slopes_along, sums_of_slopes

_CLOSE = 1e-3  # of the usual error of a sum: a true pattern leaves less
_CAP = 0.1  # of the usual error of a sum: the most that is put down to measurement errors
_SHOWS = 0.5  # of the values compared: if more is allowed, an error might not show


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Entry (o, i) of the claimed block is by_row[o] * by_column[i] * the derivative of rows[o] by columns[i]."""

    rows: Tensor | None = None  # (p,) output coordinates; None for the block's own
    columns: Tensor | None = None  # (q,) input coordinates; None for the block's own
    by_row: Tensor | None = None  # (p,) factors; None for ones
    by_column: Tensor | None = None  # (q,) factors; None for ones


def predicted_sums(sketch: RandomProjections, pattern: Pattern) -> MeasuredSums:
    """Return the sums that the pattern predicts; costs forwards only if it changes columns."""
    of, wrt = sketch.block.of, sketch.block.wrt
    weighted = sketch.cotangents[:, of.coordinates]
    weighted = weighted if pattern.by_row is None else weighted * pattern.by_row
    cotangents = _placed(weighted, sketch.cotangents, of, pattern.rows)
    slopes = sketch.slopes
    if pattern.columns is not None or pattern.by_column is not None:
        displacements = sketch.directions[:, wrt.coordinates]
        displacements = displacements if pattern.by_column is None else displacements * pattern.by_column
        slopes = slopes_along(sketch, _placed(displacements, sketch.directions, wrt, pattern.columns))
    return sums_of_slopes(cotangents, slopes)


def transposed_sums(sketch: RandomProjections) -> MeasuredSums:
    """Return the sums that are predicted if the transposed Jacobian is claimed; costs 48 forwards or more."""
    of, wrt, measured = sketch.block.of, sketch.block.wrt, sketch.block.measured
    cotangents = torch.zeros(len(sketch.directions), sketch.cotangents.shape[1], device=sketch.block.device).double()
    cotangents[:, of.coordinates] = sketch.directions[:, wrt.coordinates]
    slopes_and_sizes = []
    for cotangent in sketch.cotangents:
        direction = torch.zeros_like(measured.sampled.point)
        direction[wrt.coordinates] = cotangent[of.coordinates]
        scale = (direction.abs() / measured.lengths.step).max()
        slopes_and_sizes.append((best_slope(measured, cotangents, direction / scale), scale))
    slopes = [Estimate(value=each.value * scale, bar=each.bar * scale) for each, scale in slopes_and_sizes]
    transposed = sums_of_slopes(cotangents, slopes)
    return MeasuredSums(value=transposed.value.T, bar=transposed.bar.T)


def holds(sketch: RandomProjections, found: MeasuredSums, claimed: Tensor | None = None) -> bool:
    """True if backward's sums, or `claimed`, are the predicted ones `found` within measurement and rounding errors."""
    sums = sketch.claimed if claimed is None else claimed
    slack = torch.minimum(BAR_FACTOR * found.bar + sketch.rounding, _CAP * sketch.error_size)
    return all_set((sums - found.value).abs() <= slack + _CLOSE * sketch.error_size)


def explains(sketch: RandomProjections, pattern: Pattern) -> bool:
    """True if the pattern holds in the whole block."""
    return holds(sketch, predicted_sums(sketch, pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedPart:
    """Both sides of the sums over the entries of some inputs or outputs of a block."""

    claimed: Tensor  # (K, L)
    numeric: MeasuredSums


def sums_over_inputs(sketch: RandomProjections, inside: Tensor) -> ProjectedPart:
    """Return the sums over the entries of the inputs in the mask `inside` (q,); costs 36 forwards or more."""
    directions = torch.zeros_like(sketch.directions)
    directions[:, sketch.block.wrt.coordinates] = sketch.directions[:, sketch.block.wrt.coordinates] * inside
    return ProjectedPart(
        claimed=sketch.vjps @ directions.T, numeric=sums_of_slopes(sketch.cotangents, slopes_along(sketch, directions))
    )


def sums_over_outputs(sketch: RandomProjections, inside: Tensor) -> ProjectedPart:
    """Return the sums over the entries of the outputs in the mask `inside` (p,); costs 8 vjps."""
    cotangents = torch.zeros_like(sketch.cotangents)
    cotangents[:, sketch.block.of.coordinates] = sketch.cotangents[:, sketch.block.of.coordinates] * inside
    vjps = torch.stack([row(sketch.block.backward, cotangent) for cotangent in cotangents])
    return ProjectedPart(claimed=vjps @ sketch.directions.T, numeric=sums_of_slopes(cotangents, sketch.slopes))


def sums_outside(sketch: RandomProjections, part: ProjectedPart) -> ProjectedPart:
    """Return the sums over all entries outside the part."""
    whole = sketch.numeric
    numeric = MeasuredSums(value=whole.value - part.numeric.value, bar=whole.bar + part.numeric.bar)
    return ProjectedPart(claimed=sketch.claimed - part.claimed, numeric=numeric)


def agrees(sketch: RandomProjections, part: ProjectedPart) -> bool:
    """True if both sides of the sums over a part agree."""
    return holds(sketch, part.numeric, part.claimed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the block, and its sums with the cotangents."""

    position: int  # position of the input in the block
    numeric: Estimate  # (m,) the column
    sums: Tensor  # (K,) measured, cotangent · column
    bar: Tensor  # (K,) error bars of the sums
    claimed: Tensor  # (K,) the same sums by vjps
    wrong: bool
    right: bool  # both False if an error might not show


def columns(sketch: RandomProjections, places: Sequence[int]) -> list[Column]:
    """Return the columns of the block at these positions; each costs 6 forwards or more."""
    return [_column(sketch, place) for place in places]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the block, summed along the directions."""

    position: int  # position of the output in the block
    claimed: Tensor  # (L,) row · direction, by vjp
    numeric: Tensor  # (L,) the same, measured
    bar: Tensor  # (L,) its error bars
    wrong: bool
    right: bool  # both False if an error might not show


def rows(sketch: RandomProjections, places: Sequence[int]) -> list[Row]:
    """Return the rows of the block at these positions; each costs a vjp."""
    return [_row(sketch, place) for place in places]


def _placed(values: Tensor, like: Tensor, block: Block, places: Tensor | None) -> Tensor:
    """Return `values` written to the block, or added at the coordinates `places`, of a zero tensor like `like`."""
    whole = torch.zeros_like(like)
    if places is None:
        whole[:, block.coordinates] = values
        return whole
    return whole.index_add_(1, places, values)


def _column(sketch: RandomProjections, place: int) -> Column:
    sums, measured = sketch.block, sketch.block.measured
    coordinate = sums.wrt.start + place * sums.wrt.step
    step = measured.lengths.step[coordinate]
    direction = torch.zeros_like(measured.sampled.point)
    direction[coordinate] = step
    found = best_slope(measured, sketch.cotangents, direction)
    numeric = Estimate(value=found.value / step, bar=found.bar / step)
    summed = sums_of_slopes(sketch.cotangents, (numeric,))
    value, bar = summed.value[:, 0], summed.bar[:, 0]
    claimed = sketch.vjps[:, coordinate]
    wrong, right = _verdict(measured, claimed, value, bar)
    return Column(
        position=place,
        numeric=numeric,
        sums=value,
        bar=bar,
        claimed=claimed,
        wrong=wrong,
        right=right,
    )


def _row(sketch: RandomProjections, place: int) -> Row:
    sums = sketch.block
    coordinate = sums.of.start + place * sums.of.step
    cotangent = torch.zeros_like(sketch.cotangents[0])
    cotangent[coordinate] = 1.0
    claimed = sketch.directions @ row(sums.backward, cotangent)
    numeric = torch.stack([found.value[coordinate] for found in sketch.slopes])
    bar = torch.stack([found.bar[coordinate] for found in sketch.slopes])
    wrong, right = _verdict(sums.measured, claimed, numeric, bar)
    return Row(
        position=place,
        claimed=claimed,
        numeric=numeric,
        bar=bar,
        wrong=wrong,
        right=right,
    )


def _verdict(measured: MeasuredProblem, claimed: Tensor, numeric: Tensor, bar: Tensor) -> tuple[bool, bool]:
    """Return whether the two sides differ, and whether they agree; both False if an error might not show."""
    rtol = relative_tolerance(Tolerances(), measured.sampled.dtypes)
    size = torch.maximum(claimed.abs(), numeric.abs())
    error, allowed = (claimed - numeric).abs(), BAR_FACTOR * bar + rtol * size.max()
    within, visible = all_set(error <= allowed), any_set(allowed <= _SHOWS * size)
    return any_set(error > allowed), within and (visible or not any_set(size))
