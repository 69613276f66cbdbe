"""Coordinates of whole tensors, of which a complex one has two blocks."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.core.model.coordinates import Block


def places_of(blocks: Sequence[Block], tensor: int) -> slice:
    """Return the coordinates of the tensor with this number."""
    own = [block for block in blocks if block.tensor == tensor]
    return slice(min(block.start for block in own), max(block.stop for block in own))


def name_of(blocks: Sequence[Block], tensor: int) -> str:
    """Return what the user calls the tensor with this number."""
    own = next(block for block in blocks if block.tensor == tensor)
    return own.name if own.step == 1 else own.name.rpartition(".")[0]


def numbers_of(blocks: Sequence[Block]) -> list[int]:
    """Return the numbers of the tensors that these blocks are of."""
    return sorted({block.tensor for block in blocks})
