"""The lengths on which inputs vary: what a step is a fraction of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.function.sampler import Sampler

_FLOOR = 2.0**-2  # a cheap step never goes below this part of the tensor's own scale
_NOTHING = torch.finfo(torch.float64).tiny * 2.0**60  # what is smaller cannot be moved by a small part of itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Length scales per input coordinate, each (n,) float64."""

    own: Tensor  # |x_j|, zero where the coordinate is zero
    shared: Tensor  # median of the non-zero |x| of the tensor, 1 where all are zero
    step: Tensor  # what a step is taken relative to: own, with a part of shared as floor


def scales(sampled: Sampler) -> Scales:
    """Return the length scales of every input coordinate."""
    own = sampled.point.abs()
    known = torch.where((own >= _NOTHING) & (own < torch.inf), own, torch.nan)
    shared = torch.ones_like(own)
    for block in sampled.inputs:
        shared[block.coordinates] = known[block.coordinates].nanmedian()
    shared = shared.nan_to_num(1.0)
    own = torch.where(own < _NOTHING, 0.0, torch.where(own < torch.inf, own, shared))
    return Scales(own=own, shared=shared, step=torch.maximum(own, shared * _FLOOR))


def own_or_shared(lengths: Scales) -> Tensor:
    """Return each coordinate's own length, or its tensor's where it is zero; (n,)."""
    return torch.where(lengths.own > 0, lengths.own, lengths.shared)
