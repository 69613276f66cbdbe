"""Directional derivatives of the smooth pieces that meet at a kink, from differences at nearby points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import torch
from torch import Generator, Tensor

from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.sampler import Sampler

DISTANCE = 2.0**-18  # of the points from the point, relative to the length scale
STEP = 2.0**-27  # of the differences, short enough to stay inside one smooth piece
_HELD = 4_000_000  # numbers held at a time


def directional_derivatives_at(
    sampled: Sampler, places: Iterable[Tensor], directions: Sequence[Tensor], step: float = STEP
) -> Tensor:
    """Return the derivatives along q directions at the N points `sampled.point + place`, (N, q, m).

    `step` is a multiple of the directions. Costs q + 1 forwards per point.
    """
    count = len(directions) + 1
    points_at_once = max(1, _HELD // (count * (sampled.point.numel() + sampled.value.numel())))
    derivatives, remaining = [], iter(places)
    while batch := list(islice(remaining, points_at_once)):
        centres = torch.stack(batch) + sampled.point
        points = torch.stack([centres, *(centres + step * direction for direction in directions)], dim=1)
        values = sampled.value.new_empty(len(batch), count, sampled.value.numel())
        evaluate(sampled, points.flatten(0, 1), values.flatten(0, 1))
        derivatives.append((values[:, 1:] - values[:, :1]) / step)
    return torch.cat(derivatives)


def spread_evenly(chosen: Tensor, generator: Generator) -> Tensor:
    """Return evenly spaced numbers from -1 to 1 for the coordinates `chosen` (n,), in random order; -1 for the others.

    Number k of `count` is 2 k / count - 1.
    """
    count = int(chosen.sum())
    positions = torch.zeros(chosen.shape, dtype=torch.float64, device=chosen.device)
    positions[chosen] = torch.randperm(count, generator=generator).to(positions)
    return 2.0 * positions / max(1, count) - 1.0
