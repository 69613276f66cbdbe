"""Some columns and rows of a block, beside the sums over all of it: what patterns are guessed from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.core.whole.patterns import Column, Row, columns, rows
from gradverify.core.whole.sums import Asked

_RANDOM = 16  # places looked at, spread over the block
_KNOWN = 8  # and of the wrong ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A block with some of its columns and rows."""

    asked: Asked
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    anywhere: int  # so many of either, the first, were picked blindly


def look(asked: Asked) -> Look:
    """Look at some columns, at 6 forwards each or more, and some rows, at a vjp each."""
    sums = asked.sums
    generator = torch.Generator().manual_seed(sums.seed + 6)
    blind = [_blindly(block, generator) for block in (sums.wrt, sums.of)]
    anywhere = min(map(len, blind))
    inputs, outputs = (
        list(dict.fromkeys([*picked[:anywhere], *known.tolist()[:_KNOWN], *picked[anywhere:], *_corners(block)]))
        for picked, known, block in (
            (blind[0], sums.found.inputs, sums.wrt),
            (blind[1], sums.found.outputs, sums.of),
        )
    )
    return Look(asked=asked, columns=tuple(columns(asked, inputs)), rows=tuple(rows(asked, outputs)), anywhere=anywhere)


def _blindly(block: Block, generator: torch.Generator) -> list[int]:
    places: Tensor = torch.randperm(total(block.shape), generator=generator)
    return [int(place) for place in places[:_RANDOM]]


def _corners(block: Block) -> list[int]:
    size = total(block.shape)
    return sorted({0, size // 2, size - 1})
