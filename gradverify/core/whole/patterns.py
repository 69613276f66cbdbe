"""Patterns of a wrong block compared with random projections of it, and with parts of these."""

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
from gradverify.core.whole.sums import Asked, Summed, along, steep, summed_up

_CLOSE = 1e-3  # of the error: a pattern that is no coincidence leaves less
_CAP = 0.1  # of the error: no more may be put down to the measurement
_SHOWS = 0.5  # of what there is: where more is allowed, an error might not show


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Entry (o, i) of the claimed block is by_row[o] * by_column[i] * the derivative of rows[o] by columns[i]."""

    rows: Tensor | None = None  # (p,) coordinates, None: the block's own
    columns: Tensor | None = None  # (q,)
    by_row: Tensor | None = None  # (p,) factors, None: ones
    by_column: Tensor | None = None  # (q,)


def expected(asked: Asked, pattern: Pattern) -> Summed:
    """Return what the sums should be if the pattern held; costs forwards only where it is about columns."""
    of, wrt = asked.sums.of, asked.sums.wrt
    given = asked.cotangents[:, of.coordinates]
    given = given if pattern.by_row is None else given * pattern.by_row
    cotangents = _placed(given, asked.cotangents, of, pattern.rows)
    slopes = asked.slopes
    if pattern.columns is not None or pattern.by_column is not None:
        moves = asked.directions[:, wrt.coordinates]
        moves = moves if pattern.by_column is None else moves * pattern.by_column
        slopes = along(asked, _placed(moves, asked.directions, wrt, pattern.columns))
    return summed_up(cotangents, slopes)


def exchanged(asked: Asked) -> Summed:
    """Return what the sums should be if the transposed Jacobian were claimed; costs 48 forwards or more."""
    of, wrt, measured = asked.sums.of, asked.sums.wrt, asked.sums.measured
    weighing = torch.zeros(len(asked.directions), asked.cotangents.shape[1], device=asked.sums.device).double()
    weighing[:, of.coordinates] = asked.directions[:, wrt.coordinates]
    found = []
    for cotangent in asked.cotangents:
        move = torch.zeros_like(measured.sampled.point)
        move[wrt.coordinates] = cotangent[of.coordinates]
        size = (move.abs() / measured.lengths.step).max()
        found.append((steep(measured, weighing, move / size), size))
    slopes = [Estimate(value=each.value * size, bar=each.bar * size) for each, size in found]
    turned = summed_up(weighing, slopes)
    return Summed(value=turned.value.T, bar=turned.bar.T)


def holds(asked: Asked, found: Summed, claimed: Tensor | None = None) -> bool:
    """Tell whether backward's sums, or those given, are the expected ones, as nearly as measurement can tell."""
    said = asked.claimed if claimed is None else claimed
    slack = torch.minimum(BAR_FACTOR * found.bar + asked.rounding, _CAP * asked.typical)
    return all_set((said - found.value).abs() <= slack + _CLOSE * asked.typical)


def explains(asked: Asked, pattern: Pattern) -> bool:
    """Tell whether the pattern holds all over the block."""
    return holds(asked, expected(asked, pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Both sides of the sums over the entries of some inputs, or outputs, of a block."""

    claimed: Tensor  # (K, L)
    numeric: Summed


def of_inputs(asked: Asked, inside: Tensor) -> Part:
    """Return the sums over the entries of some inputs, (q,) bool; costs 36 forwards or more."""
    moves = torch.zeros_like(asked.directions)
    moves[:, asked.sums.wrt.coordinates] = asked.directions[:, asked.sums.wrt.coordinates] * inside
    return Part(claimed=asked.answers @ moves.T, numeric=summed_up(asked.cotangents, along(asked, moves)))


def of_outputs(asked: Asked, inside: Tensor) -> Part:
    """Return the sums over the entries of some outputs, (p,) bool; costs 8 vjps."""
    given = torch.zeros_like(asked.cotangents)
    given[:, asked.sums.of.coordinates] = asked.cotangents[:, asked.sums.of.coordinates] * inside
    answers = torch.stack([row(asked.sums.backward, cotangent) for cotangent in given])
    return Part(claimed=answers @ asked.directions.T, numeric=summed_up(given, asked.slopes))


def rest(asked: Asked, part: Part) -> Part:
    """Return the sums over all other entries."""
    whole = asked.numeric
    numeric = Summed(value=whole.value - part.numeric.value, bar=whole.bar + part.numeric.bar)
    return Part(claimed=asked.claimed - part.claimed, numeric=numeric)


def agrees(asked: Asked, part: Part) -> bool:
    """Tell whether both sides say the same of a part."""
    return holds(asked, part.numeric, part.claimed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The derivative by one input."""

    place: int  # in the block
    numeric: Estimate  # (m,)
    sums: Tensor  # (K,) of it with the cotangents
    bar: Tensor  # (K,)
    claimed: Tensor  # (K,)
    wrong: bool
    right: bool  # neither where it cannot be told


def columns(asked: Asked, places: Sequence[int]) -> list[Column]:
    """Return some columns of the block, by positions in it; each costs 6 forwards or more."""
    return [_column(asked, place) for place in places]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What comes back from one output."""

    place: int  # in the block
    claimed: Tensor  # (L,) along the directions
    numeric: Tensor  # (L,)
    bar: Tensor  # (L,)
    wrong: bool
    right: bool


def rows(asked: Asked, places: Sequence[int]) -> list[Row]:
    """Return some rows of the block, by positions in it; each costs a vjp."""
    return [_row(asked, place) for place in places]


def _placed(values: Tensor, like: Tensor, block: Block, places: Tensor | None) -> Tensor:
    whole = torch.zeros_like(like)
    if places is None:
        whole[:, block.coordinates] = values
        return whole
    return whole.index_add_(1, places, values)


def _column(asked: Asked, place: int) -> Column:
    sums, measured = asked.sums, asked.sums.measured
    at = sums.wrt.start + place * sums.wrt.step
    step = measured.lengths.step[at]
    direction = torch.zeros_like(measured.sampled.point)
    direction[at] = step
    found = steep(measured, asked.cotangents, direction)
    numeric = Estimate(value=found.value / step, bar=found.bar / step)
    summed = summed_up(asked.cotangents, (numeric,))
    value, bar = summed.value[:, 0], summed.bar[:, 0]
    claimed = asked.answers[:, at]
    wrong, right = _verdict(measured, claimed, value, bar)
    return Column(
        place=place,
        numeric=numeric,
        sums=value,
        bar=bar,
        claimed=claimed,
        wrong=wrong,
        right=right,
    )


def _row(asked: Asked, place: int) -> Row:
    sums = asked.sums
    at = sums.of.start + place * sums.of.step
    cotangent = torch.zeros_like(asked.cotangents[0])
    cotangent[at] = 1.0
    claimed = asked.directions @ row(sums.backward, cotangent)
    numeric = torch.stack([found.value[at] for found in asked.slopes])
    bar = torch.stack([found.bar[at] for found in asked.slopes])
    wrong, right = _verdict(sums.measured, claimed, numeric, bar)
    return Row(
        place=place,
        claimed=claimed,
        numeric=numeric,
        bar=bar,
        wrong=wrong,
        right=right,
    )


def _verdict(measured: MeasuredProblem, claimed: Tensor, numeric: Tensor, bar: Tensor) -> tuple[bool, bool]:
    """Tell whether one side is wrong, and whether it is right: neither where an error might not show."""
    rtol = relative_tolerance(Tolerances(), measured.sampled.dtypes)
    larger = torch.maximum(claimed.abs(), numeric.abs())
    apart, allowed = (claimed - numeric).abs(), BAR_FACTOR * bar + rtol * larger.max()
    within, shows = all_set(apart <= allowed), any_set(allowed <= _SHOWS * larger)
    return any_set(apart > allowed), within and (shows or not any_set(larger))
