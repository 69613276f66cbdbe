"""How many numbers are gone through at a time, where many small steps are taken with each of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

FEW = 32  # inputs: with fewer than these each is moved alone, and no structure is looked for
_HELD = 2_000_000  # sampled numbers held at a time
_CACHED = 1 << 15  # of a vector: so many that a dozen such vectors stay in a cache
_FEW_STEPS = 2  # portions that are quicker gone through at once
_LAUNCHED = 1 << 20  # on other devices, where a step costs the same for fewer


def portion(like: Tensor) -> int:
    """Return how many numbers to take at a time on this tensor's device."""
    return _CACHED if like.device.type == "cpu" else _LAUNCHED


def portions(like: Tensor) -> list[slice]:
    """Return the places of a vector (n,), so many at a time."""
    width = portion(like)
    return [slice(start, start + width) for start in range(0, like.numel(), width)]


def rows_at_once(like: Tensor) -> int:
    """Return how many rows of a matrix are gone through together where few steps are taken: of a few portions."""
    return max(1, _FEW_STEPS * portion(like) // max(1, like.shape[1]))


def chunks(chosen: Tensor, numbers_per_move: int) -> Iterator[Tensor]:
    """Yield moves, as many at a time as may be held with so many numbers each."""
    size = max(1, _HELD // max(1, numbers_per_move))
    yield from torch.split(chosen, size) if len(chosen) else ()
