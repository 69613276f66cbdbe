"""Derivatives, along a few directions, of the smooth pieces that meet at a kink: differences at points close by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import torch
from torch import Generator, Tensor

from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.sampler import Sampler

DISTANCE = 2.0**-18  # of the points, relative to the length scale
STEP = 2.0**-27  # of the differences there, well inside one smooth piece
_HELD = 4_000_000  # numbers at a time


def slopes(sampled: Sampler, places: Iterable[Tensor], directions: Sequence[Tensor], step: float = STEP) -> Tensor:
    """Return the derivatives along the directions (q of them) at point + place (N of them), (N, q, m).

    `step` is relative to the directions' length. Costs q + 1 forwards for each place.
    """
    count = len(directions) + 1
    most = max(1, _HELD // (count * (sampled.point.numel() + sampled.value.numel())))
    found, left = [], iter(places)
    while held := list(islice(left, most)):
        some = torch.stack(held) + sampled.point
        points = torch.stack([some, *(some + step * direction for direction in directions)], dim=1)
        values = sampled.value.new_empty(len(held), count, sampled.value.numel())
        evaluate(sampled, points.flatten(0, 1), values.flatten(0, 1))
        found.append((values[:, 1:] - values[:, :1]) / step)
    return torch.cat(found)


def spread_evenly(chosen: Tensor, generator: Generator) -> Tensor:
    """Return places from -1 to 1 for some coordinates, (n,) bool, in random order and equally far apart; -1 for others.

    The place k of `count` is 2 k / count - 1.
    """
    count = int(chosen.sum())
    places = torch.zeros(chosen.shape, dtype=torch.float64, device=chosen.device)
    places[chosen] = torch.randperm(count, generator=generator).to(places)
    return 2.0 * places / max(1, count) - 1.0
