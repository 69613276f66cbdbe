"""Limits of memory: how many numbers are held, and processed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

_LARGEST_THRESHOLD = (1 << 25) - (1 << 16)  # bytes: glibc's limit of 32 MiB, less 64 KiB for its headers
SUBSET = 1 << 14  # numbers whose median stands for that of more
REMEMBERED = 1 << 10  # coordinates: outputs at points up to this length are remembered
FEW_INPUTS = 32  # input coordinates: with fewer, each is perturbed alone, and no sparsity is looked for
HELD = 2_000_000  # numbers held in memory at a time: 16 MB
LARGEST = 40_000_000  # numbers in the largest tensors that are computed at all: 320 MB
AT_ONCE = 1 << 17  # numbers in the points and outputs of one call: for more, single calls cost nothing extra
MIN_BATCHED = 6  # points, or cotangents: fewer are evaluated one by one
_PORTION_ON_CPU = 1 << 15  # numbers per portion on the CPU: a dozen vectors of this length fit in a cache
_PORTION_ELSEWHERE = 1 << 20  # numbers per portion on other devices, where launching a kernel costs as much for fewer


def uninitialised_rows(rows: int, like: Tensor) -> Tensor:
    """Return uninitialised float64 numbers on the device of `like` (n,); (rows, n).

    On the CPU numpy allocates them, since it requests huge pages: page faults on small pages would take longer than
    computing with the numbers.
    """
    if like.device.type == "cpu":
        return torch.from_numpy(np.empty((rows, like.numel())))
    return torch.empty(rows, like.numel(), dtype=torch.float64, device=like.device)


@cache
def keep_freed_memory() -> None:
    """Make glibc keep up to 64 MiB of freed memory for later tensors instead of returning it to the system.

    A check allocates thousands of tensors of a few hundred kilobytes. By default, each may get fresh pages, and their
    page faults take longer than computing with the tensor. glibc adapts to the largest block freed so far, up to
    32 MiB, and keeps twice as much (mallopt(3), M_MMAP_THRESHOLD). The block freed here is never written to. Other C
    libraries ignore it.
    """
    torch.empty(_LARGEST_THRESHOLD, dtype=torch.uint8, device="cpu")


def portion(like: Tensor) -> int:
    """Return how many numbers to process at a time on the device of `like`."""
    return _PORTION_ON_CPU if like.device.type == "cpu" else _PORTION_ELSEWHERE


def portions(like: Tensor) -> list[slice]:
    """Return slices of `portion` entries each that cover a vector (n,)."""
    width = portion(like)
    return [slice(start, start + width) for start in range(0, like.numel(), width)]


def chunks(indices: Tensor, numbers_per_index: int) -> Iterator[Tensor]:
    """Yield parts of a vector of indices, so that each part needs at most `HELD` numbers."""
    size = max(1, HELD // max(1, numbers_per_index))
    yield from torch.split(indices, size) if len(indices) else ()
