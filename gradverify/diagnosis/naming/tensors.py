"""Coordinates and names of whole tensors; a complex tensor consists of two blocks."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.core.model.coordinates import Block


def slice_of(blocks: Sequence[Block], tensor: int) -> slice:
    """Return the slice of coordinates of the tensor with this number."""
    parts = [block for block in blocks if block.tensor == tensor]
    return slice(min(block.start for block in parts), max(block.stop for block in parts))


def name_of(blocks: Sequence[Block], tensor: int) -> str:
    """Return the name of the tensor with this number, without ".real" or ".imag"."""
    first = next(block for block in blocks if block.tensor == tensor)
    return first.name if first.step == 1 else first.name.rpartition(".")[0]


def numbers_of(blocks: Sequence[Block]) -> list[int]:
    """Return the numbers of the tensors of these blocks, in ascending order."""
    return sorted({block.tensor for block in blocks})
