"""The largest and the smallest of what each rung of a ladder and all finer ones say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_MANY = 1 << 12  # values: with fewer, a call for each rung costs more than torch's scan, which has no vectors


def largest_onwards(values: Tensor) -> Tensor:
    """Return the largest from each rung on, of (C, K, m) without NaN."""
    if values.numel() < _MANY:
        return values.flip(1).cummax(dim=1).values.flip(1)
    return _scanned(values, torch.maximum)


def smallest_onwards(values: Tensor) -> Tensor:
    """Return the smallest from each rung on, of (C, K, m) without NaN."""
    if values.numel() < _MANY:
        return values.flip(1).cummin(dim=1).values.flip(1)
    return _scanned(values, torch.minimum)


def _scanned(values: Tensor, better: Callable[..., Any]) -> Tensor:
    found = values.clone()
    rungs = found.unbind(dim=1)
    for k in reversed(range(len(rungs) - 1)):
        better(rungs[k], rungs[k + 1], out=rungs[k])
    return found
