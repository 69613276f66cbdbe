"""How many numbers are held at a time: blocks that stay in a cache, and memory that one check leaves to the next."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

_LARGEST_HEEDED = (1 << 25) - (1 << 16)  # bytes: 32 MiB, with room for what the library puts beside them
FEW = 32  # inputs: with fewer than these each is moved alone, and no structure is looked for
_HELD = 2_000_000  # sampled numbers held at a time
_CACHED = 1 << 15  # of a vector: so many that a dozen such vectors stay in a cache
_FEW_STEPS = 2  # portions that are quicker gone through at once
_LAUNCHED = 1 << 20  # on other devices, where a step costs the same for fewer


def room(rows: int, like: Tensor) -> Tensor:
    """Return rows of uninitialised float64 numbers, each as long as `like` (n,) and on its device; (rows, n).

    On the CPU numpy asks for it, since it asks for large pages: to be given millions of numbers in small ones takes
    longer than to compute with them.
    """
    if like.device.type == "cpu":
        return torch.from_numpy(np.empty((rows, like.numel())))
    return torch.empty(rows, like.numel(), dtype=torch.float64, device=like.device)


@cache
def keep_what_is_freed() -> None:
    """Have the C library keep up to 64 MiB that are freed, for the next tensor to be had without asking the system.

    A check makes thousands of tensors of a few hundred kilobytes each, and by default every one of them may come in
    fresh pages, which cost more to be given than to compute with. glibc learns that it is otherwise from the largest
    block it has seen go: up to 32 MiB, it keeps twice as much (mallopt(3), M_MMAP_THRESHOLD). Nothing is ever written
    to this one. Other libraries take no notice.
    """
    torch.empty(_LARGEST_HEEDED, dtype=torch.uint8, device="cpu")


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
