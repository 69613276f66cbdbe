"""Parts of a large block: both sides of the sums over some inputs or outputs, and single columns and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.function.analytic import row
from gradverify.core.function.flags import all_set, any_set
from gradverify.core.judging.allowance import relative_tolerance
from gradverify.core.judging.ground import Ground
from gradverify.core.numeric.samples import BAR_FACTOR, Estimate
from gradverify.core.whole.patterns import holds
from gradverify.core.whole.sums import Asked, Summed, along, steep, summed_up

_SHOWS = 0.5  # of what there is: where more is allowed, an error might not show


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


def _column(asked: Asked, place: int) -> Column:
    sums, ground = asked.sums, asked.sums.ground
    at = sums.wrt.start + place * sums.wrt.step
    step = ground.lengths.step[at]
    direction = torch.zeros_like(ground.sampled.point)
    direction[at] = step
    found = steep(ground, asked.cotangents, direction)
    numeric = Estimate(value=found.value / step, bar=found.bar / step)
    summed = summed_up(asked.cotangents, (numeric,))
    value, bar = summed.value[:, 0], summed.bar[:, 0]
    claimed = asked.answers[:, at]
    wrong, right = _verdict(ground, claimed, value, bar)
    return Column(
        place=place,
        numeric=numeric,
        sums=value,
        bar=bar,
        claimed=claimed,
        wrong=wrong,
        right=right,
    )


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


def _row(asked: Asked, place: int) -> Row:
    sums = asked.sums
    at = sums.of.start + place * sums.of.step
    cotangent = torch.zeros_like(asked.cotangents[0])
    cotangent[at] = 1.0
    claimed = asked.directions @ row(sums.backward, cotangent)
    numeric = torch.stack([found.value[at] for found in asked.slopes])
    bar = torch.stack([found.bar[at] for found in asked.slopes])
    wrong, right = _verdict(sums.ground, claimed, numeric, bar)
    return Row(
        place=place,
        claimed=claimed,
        numeric=numeric,
        bar=bar,
        wrong=wrong,
        right=right,
    )


def _verdict(ground: Ground, claimed: Tensor, numeric: Tensor, bar: Tensor) -> tuple[bool, bool]:
    """Tell whether one side is wrong, and whether it is right: neither where an error might not show."""
    rtol = relative_tolerance(Tolerances(), ground.sampled.dtypes)
    larger = torch.maximum(claimed.abs(), numeric.abs())
    apart, allowed = (claimed - numeric).abs(), BAR_FACTOR * bar + rtol * larger.max()
    within, shows = all_set(apart <= allowed), any_set(allowed <= _SHOWS * larger)
    return any_set(apart > allowed), within and (shows or not any_set(larger))
