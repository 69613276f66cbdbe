"""Derivatives, along a few directions, of the smooth pieces that meet at a kink: differences at points close by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.sampler import Sampler
from gradverify.core.together import evaluate

DISTANCE = 2.0**-18  # of the points, relative to the length scale
STEP = 2.0**-27  # of the differences there, well inside one smooth piece
_HELD = 4_000_000  # numbers at a time


def slopes(sampled: Sampler, places: Sequence[Tensor], directions: Sequence[Tensor]) -> Tensor:
    """Return the derivatives along the directions (q of them) at point + place (N of them), (N, q, m).

    Costs q + 1 forwards for each place.
    """
    count = len(directions) + 1
    values = sampled.value.new_empty(len(places), count, sampled.value.numel())
    most = max(1, _HELD // (count * (sampled.point.numel() + sampled.value.numel())))
    for first in range(0, len(places), most):
        some = torch.stack(list(places[first : first + most])) + sampled.point
        points = torch.stack([some, *(some + STEP * direction for direction in directions)], dim=1)
        evaluate(sampled, points.flatten(0, 1), values[first : first + most].flatten(0, 1))
    return (values[:, 1:] - values[:, :1]) / STEP
