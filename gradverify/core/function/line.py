"""The forward at points of a line."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.function.sampler import Sampler
from gradverify.core.function.together import evaluate

_LARGE = 1 << 17  # numbers in a point and its outputs, from which on a call of its own costs nothing


def on_line(sampled: Sampler, direction: Tensor, distances: Sequence[float]) -> Tensor:
    """Return the outputs at some distances from the point along a direction (n,); (K, m).

    Large ones one after the other, so that no more points are held at a time than one.
    """
    found = sampled.value.new_empty(len(distances), sampled.value.numel())
    if sampled.point.numel() + sampled.value.numel() < _LARGE:
        evaluate(sampled, points_on_line(sampled, direction, distances), found)
        return found
    for distance, into in zip(distances, torch.split(found, 1), strict=True):
        evaluate(sampled, torch.add(sampled.point, direction, alpha=distance).unsqueeze(0), into)
    return found


def points_on_line(sampled: Sampler, direction: Tensor, distances: Sequence[float]) -> Tensor:
    """Return the points at some distances along a direction (n,); (K, n)."""
    far = torch.tensor(distances, dtype=direction.dtype, device=direction.device)
    return sampled.point + far.unsqueeze(1) * direction
