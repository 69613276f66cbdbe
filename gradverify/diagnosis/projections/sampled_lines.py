"""A sample of the columns and rows of a large block, from which patterns are guessed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.projections.sums import RandomProjections, SampledLine, lines

_RANDOM = 16  # columns, and rows, chosen at random
_KNOWN = 8  # columns, and rows, that are known to be wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLines:
    """The random projections of a block, with a sample of its columns and rows."""

    projections: RandomProjections
    columns: tuple[SampledLine, ...]
    rows: tuple[SampledLine, ...]
    random_count: int  # number of leading columns, and rows, that were chosen at random


def sampled_lines(projections: RandomProjections) -> SampledLines:
    """Return a sample of columns and rows: random ones, wrong ones, and the first, middle and last.

    A column costs at least 6 forward evaluations, a row one vjp.
    """
    sums = projections.block
    generator = torch.Generator().manual_seed(sums.settings.seed + 6)
    random = [_random(block, generator) for block in (sums.wrt, sums.of)]
    random_count = min(map(len, random))
    inputs, outputs = (
        list(
            dict.fromkeys([*picked[:random_count], *known.tolist()[:_KNOWN], *picked[random_count:], *_corners(block)])
        )
        for picked, known, block in (
            (random[0], sums.wrong_entries.inputs, sums.wrt),
            (random[1], sums.wrong_entries.outputs, sums.of),
        )
    )
    return SampledLines(
        projections=projections,
        columns=tuple(lines(projections, Axis.INPUT, inputs)),
        rows=tuple(lines(projections, Axis.OUTPUT, outputs)),
        random_count=random_count,
    )


def _random(block: Block, generator: torch.Generator) -> list[int]:
    """Return random positions in a block, each at most once."""
    places: Tensor = torch.randperm(total(block.shape), generator=generator)
    return [int(place) for place in places[:_RANDOM]]


def _corners(block: Block) -> list[int]:
    """Return the first, the middle and the last position in a block."""
    size = total(block.shape)
    return sorted({0, size // 2, size - 1})
