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
from gradverify.core.model.memory import portions

_POINTS = 8  # samples on each side of the point
PLACES = tuple(k + 0.8 * (k * 0.6180339887498949 % 1) for k in range(1, _POINTS + 1))  # no two distances alike
_ORDERS = (3, 4, 5)  # orders of difference taken into account
_TINY = torch.finfo(torch.float64).tiny
_LARGE = 1 << 17  # numbers in a point and its outputs, from which on a call of its own costs nothing


def noise_in(samples: Tensor) -> Tensor:
    """Return the noise in samples at `PLACES` of a line, (8, m) -> (m,); a few outputs at a time, in a cache."""
    found = torch.empty_like(samples[0])
    for some in portions(found):
        found[some] = _from_differences(samples[:, some])
    return found


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


def _from_differences(samples: Tensor) -> Tensor:
    """Return the smallest of the noise estimates of the difference orders; (points, m) -> (m,)."""
    apart = samples[1:] - samples[0]
    size = apart.abs().amax(dim=0).clamp_(min=_TINY)  # whose square may underflow
    squares = (_weights().to(apart.device) @ apart.div_(size)).square_()
    return (_means().to(apart.device) @ squares).amin(dim=0).sqrt_().mul_(size)


@cache
def _weights() -> Tensor:
    """Return the weights of all differences of all orders between neighbouring samples; (differences, points - 1).

    Divided differences, scaled such that independent noise of variance 1 gives variance 1. Those of the first sample
    are left out: the others are taken relative to it, and weights add up to zero.
    """
    return torch.cat([_weights_of(order) for order in _ORDERS])[:, 1:].contiguous()


@cache
def _means() -> Tensor:
    """Return the weights of the mean over the differences of each order; (orders, differences)."""
    order = torch.tensor([order for order in _ORDERS for _ in range(_POINTS - order)], device="cpu")
    mine = (order == torch.tensor(_ORDERS, device="cpu").unsqueeze(1)).to(torch.float64)
    return mine / mine.sum(dim=1, keepdim=True)


def _weights_of(order: int) -> Tensor:
    rows = torch.zeros(_POINTS - order, _POINTS, dtype=torch.float64, device="cpu")
    for start, row in enumerate(rows):
        nodes = PLACES[start : start + order + 1]
        for number, node in enumerate(nodes):
            row[start + number] = 1 / math.prod(node - other for other in nodes if other != node)
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt()
