"""Tiles: blocks of entries small enough for a cache, and the entries of a tile that match beyond doubt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.compare import all_matching
from gradverify.core.decide.context import JudgingContext, of_column_groups, part_of
from gradverify.core.decide.doubt import is_resolved_beside
from gradverify.core.decide.tolerance import ROUNDING, EntryTolerance
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.samples import Samples
from gradverify.core.estimate.stencil import Stencil, first_steps, samples_of
from gradverify.core.estimate.stencil_polynomial import (
    LARGEST_STEPS_FROM_ZERO,
    POSITION_ROUNDING,
    bends_sharply,
    polynomial_through,
    slope_of,
)
from gradverify.core.forward import sampler
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.memory import portion


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Some of the sampled column groups, restricted to some of the outputs."""

    sampled: Sampler  # restricted to these outputs, as the noise is
    noise: Noise
    claimed: Tensor  # (C, m)
    allowance: EntryTolerance
    stencil: Stencil  # holds these column groups and outputs, and others
    rows: slice
    outputs: slice

    @property
    def samples(self) -> Samples:
        """The samples of these column groups and outputs."""
        return samples_of(self.sampled, self.stencil, self.rows, self.outputs)


def claims_on(context: JudgingContext, stencil: Stencil) -> Tensor:
    """Return the claims for the sampled column groups, (C, m)."""
    return context.claimed if len(stencil.chosen) == context.column_groups.count else context.claimed[stencil.chosen]


def tiles(context: JudgingContext, stencil: Stencil) -> Iterator[Tile]:
    """Yield the entries of the sampled column groups, tile by tile."""
    claimed, allowance = claims_on(context, stencil), of_column_groups(context.allowance, stencil.chosen)
    count, width = claimed.shape
    wide = min(max(1, width), portion(claimed))
    high = max(1, portion(claimed) // wide)
    for left in range(0, width, wide):
        outputs = slice(left, min(width, left + wide))
        sampled, noise = _looking_at(context, outputs)
        for top in range(0, count, high):
            rows = slice(top, min(count, top + high))
            yield Tile(
                sampled=sampled,
                noise=noise,
                claimed=claimed[rows, outputs],
                allowance=part_of(allowance, rows, outputs),
                stencil=stencil,
                rows=rows,
                outputs=outputs,
            )


def narrowed(tile: Tile, rows: Tensor, outputs: Tensor) -> Tile:
    """Return the tile restricted to some of its column groups and outputs, given by index."""
    stencil, every = tile.stencil, slice(None)
    own = stencil.length_index[tile.rows][rows]
    return Tile(
        sampled=sampler.restricted_to_outputs(tile.sampled, outputs),
        noise=tile.noise.of(outputs),
        claimed=tile.claimed[rows][:, outputs],
        allowance=part_of(part_of(tile.allowance, rows, every), every, outputs),
        stencil=Stencil(
            chosen=stencil.chosen[tile.rows][rows],
            steps=stencil.steps,
            lengths=stencil.lengths,
            length_index=own if own.shape[1] == 1 else own[:, tile.outputs][:, outputs],
            values=stencil.values[:, tile.rows, tile.outputs][:, rows][:, :, outputs],
        ),
        rows=every,
        outputs=every,
    )


def plain_entries(tile: Tile) -> tuple[Judged, Tensor]:
    """Return the verdicts on a tile sampled at the steps of `richardson`, and a mask of those beyond doubt; (C, m)."""
    sampled, claimed = tile.sampled, tile.claimed
    step = first_steps(sampled, tile.stencil, tile.rows, tile.outputs)
    series = polynomial_through(tile.stencil.values[:, tile.rows, tile.outputs] - sampled.value)
    noise = torch.addcmul(tile.noise.level, series.coefficients[:2].abs().sum(dim=0), tile.noise.relative_level)
    bent, own = bends_sharply(series, noise), claimed.abs()
    slope = slope_of(series, step, noise.addcmul_(step, own, value=LARGEST_STEPS_FROM_ZERO * POSITION_ROUNDING))
    error = (claimed - slope.value).abs_()
    fine = error <= torch.add(slope.bar, tile.allowance.row_column_size, alpha=ROUNDING)
    fine.logical_and_(is_resolved_beside(slope.bar, own, tile.allowance)).logical_and_(bent.logical_not_())
    return all_matching(slope, error, own.mul_(tile.allowance.rtol)), fine


def _looking_at(context: JudgingContext, outputs: slice) -> tuple[Sampler, Noise]:
    """Return the sampler and the noise restricted to some of the outputs."""
    if outputs == slice(0, context.sampled.value.numel()):
        return context.sampled, context.noise
    return sampler.restricted_to_outputs(context.sampled, outputs), context.noise.of(outputs)
