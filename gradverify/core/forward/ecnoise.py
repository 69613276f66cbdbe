"""Noise of a function by divided differences of samples along a line (ECnoise).

Source: Moré and Wild, Estimating Computational Noise, SIAM J. Sci. Comput. 33(3), 2011.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import TINY
from gradverify.core.model.memory import portions

_POINTS = 8  # samples on each side of the point
SAMPLE_DISTANCES = tuple(
    k + 0.8 * (k * 0.6180339887498949 % 1) for k in range(1, _POINTS + 1)
)  # distances of the samples; no two gaps are equal
_ORDERS = (3, 4, 5)  # orders of the divided differences
_LARGE = 1 << 17  # numbers in a point and its outputs: with more, single calls cost nothing extra


def noise_in(samples: Tensor) -> Tensor:
    """Return the noise of each output, from samples (8, m) at the distances `PLACES` along a line; (m,)."""
    found = torch.empty_like(samples[0])
    for part in portions(found):
        found[part] = _from_differences(samples[:, part])
    return found


def on_line(sampled: Sampler, direction: Tensor, distances: Sequence[float]) -> Tensor:
    """Return the outputs at `distances` from the point along `direction` (n,); (K, m).

    Large points are evaluated one by one, so that only one is held in memory.
    """
    found = sampled.value.new_empty(len(distances), sampled.value.numel())
    if sampled.point.numel() + sampled.value.numel() < _LARGE:
        evaluate(sampled, points_on_line(sampled, direction, distances), found)
        return found
    for distance, into in zip(distances, torch.split(found, 1), strict=True):
        evaluate(sampled, torch.add(sampled.point, direction, alpha=distance).unsqueeze(0), into)
    return found


def points_on_line(sampled: Sampler, direction: Tensor, distances: Sequence[float]) -> Tensor:
    """Return the points at `distances` along `direction` (n,); (K, n)."""
    factors = torch.tensor(distances, dtype=direction.dtype, device=direction.device)
    return sampled.point + factors.unsqueeze(1) * direction


def _from_differences(samples: Tensor) -> Tensor:
    """Return the smallest noise estimate of the difference orders, from samples (points, m); (m,)."""
    differences = samples[1:] - samples[0]
    size = differences.abs().amax(dim=0).clamp_(min=TINY)  # differences are scaled, since their squares may underflow
    squares = (_weights().to(differences.device) @ differences.div_(size)).square_()
    return (_means().to(differences.device) @ squares).amin(dim=0).sqrt_().mul_(size)


@cache
def _weights() -> Tensor:
    """Return the weights of the divided differences of neighbouring samples, all orders; (differences, points - 1).

    They are scaled so that independent noise of variance 1 gives variance 1. The weight of the first sample is left
    out: the other samples are taken relative to it, and the weights of each difference add up to zero.
    """
    return torch.cat([_weights_of(order) for order in _ORDERS])[:, 1:].contiguous()


@cache
def _means() -> Tensor:
    """Return the weights of the mean over all differences of each order; (orders, differences)."""
    order = torch.tensor([order for order in _ORDERS for _ in range(_POINTS - order)], device="cpu")
    of_order = (order == torch.tensor(_ORDERS, device="cpu").unsqueeze(1)).to(torch.float64)
    return of_order / of_order.sum(dim=1, keepdim=True)


def _weights_of(order: int) -> Tensor:
    """Return the weights of the divided differences of one order; (differences, points)."""
    rows = torch.zeros(_POINTS - order, _POINTS, dtype=torch.float64, device="cpu")
    for start, row in enumerate(rows):
        nodes = SAMPLE_DISTANCES[start : start + order + 1]
        for number, node in enumerate(nodes):
            row[start + number] = 1 / math.prod(node - other for other in nodes if other != node)
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt()
