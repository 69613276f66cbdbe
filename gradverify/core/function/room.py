"""Memory for many numbers at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def room(rows: int, like: Tensor) -> Tensor:
    """Return rows of uninitialised float64 numbers, each as long as `like` (n,) and on its device; (rows, n).

    On the CPU numpy asks for it, since it asks for large pages: to be given millions of numbers in small ones takes
    longer than to compute with them.
    """
    if like.device.type == "cpu":
        return torch.from_numpy(np.empty((rows, len(like))))
    return torch.empty(rows, len(like), dtype=torch.float64, device=like.device)
