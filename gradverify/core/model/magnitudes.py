"""Sizes of tensors and masks: their largest numbers, and whether any or all of many booleans are set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, coordinates_in
from gradverify.core.model.problem import Named

_MANY = 1 << 12  # values: with fewer, a call for each rung costs more than torch's scan, which has no vectors


def identical(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors of one shape hold the same numbers, bit for bit; what is no number is like its like."""
    return torch.equal(one, other) or all_set((one == other) | (one.isnan() & other.isnan()))


def largest(values: Tensor, outputs: Sequence[Block]) -> Tensor:
    """Return for each value the largest finite magnitude in its tensor; (m,)."""
    if len(outputs) == 1 and values.numel():
        return _farthest(values).expand_as(values)
    sizes = values.abs().nan_to_num_(0.0, 0.0, 0.0)
    for block in outputs:
        if block.stop > block.start:
            whole = slice(block.start, block.stop)  # of a complex tensor, both parts: what rounds one rounds the other
            sizes[whole] = sizes[whole].max()
    return sizes


def most(sizes: Tensor, outputs: Sequence[Block]) -> float:
    """Return the most of what `largest` says of the values in these outputs; zero where there are none."""
    if not sizes.numel():
        return 0.0
    return float(sizes[0] if len(outputs) == 1 else sizes.amax())


def unit_roundoff(outputs: Sequence[Named], like: Tensor) -> Tensor:
    """Return the unit roundoff of each value's own dtype; (m,)."""
    if len(outputs) == 1:
        return like.new_tensor(torch.finfo(outputs[0].tensor.dtype).eps / 2).expand_as(like)
    units = torch.empty_like(like)
    start = 0
    for output in outputs:
        stop = start + coordinates_in(output.tensor)
        units[start:stop] = torch.finfo(output.tensor.dtype).eps / 2
        start = stop
    return units


def any_set(flags: Tensor) -> bool:
    """Tell whether any of the flags is set; `flags` is of one byte each."""
    return flags.numel() > 0 and bool(flags.view(torch.uint8).amax())


def all_set(flags: Tensor) -> bool:
    """Tell whether all of the flags are set; `flags` is of one byte each."""
    return flags.numel() == 0 or bool(flags.view(torch.uint8).amin())


def _farthest(values: Tensor) -> Tensor:
    """Return the largest finite magnitude, (); zero where there is none."""
    lowest, highest = torch.aminmax(values)
    farthest = torch.maximum(-lowest, highest)
    return farthest if float(farthest) < math.inf else values.abs().nan_to_num_(0.0, 0.0, 0.0).max()


def suffix_maximum(values: Tensor) -> Tensor:
    """Return the largest from each rung on, of (C, K, m) without NaN."""
    if values.numel() < _MANY:
        return values.flip(1).cummax(dim=1).values.flip(1)
    return _scanned(values, torch.maximum)


def suffix_minimum(values: Tensor) -> Tensor:
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
