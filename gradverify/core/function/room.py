"""Memory for many numbers at once, and for the next ones."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

_LARGEST_HEEDED = (1 << 25) - (1 << 16)  # bytes: 32 MiB, with room for what the library puts beside them


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
