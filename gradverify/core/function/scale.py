"""The lengths on which inputs vary: what a step is a fraction of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.function.sampler import Sampler

_FLOOR = 2.0**-2  # a cheap step never goes below this part of the tensor's own scale
_MANY = 1 << 14  # sizes, of which a median is close enough to that of all
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
    shared = _shared(sampled, own)
    least, most = map(float, torch.aminmax(own)) if len(own) else (1.0, 1.0)
    if not most < math.inf:
        own = torch.where(own < torch.inf, own, shared)
    if not least >= _NOTHING:
        own.masked_fill_(own < _NOTHING, 0.0)
    floor = (shared if len(sampled.inputs) > 1 else shared[:1]) * _FLOOR
    return Scales(own=own, shared=shared, step=torch.maximum(own, floor))


def _shared(sampled: Sampler, size: Tensor) -> Tensor:
    if len(sampled.inputs) == 1:
        return _median(size).expand(len(size))
    shared = torch.empty_like(size)
    for block in sampled.inputs:
        shared[block.coordinates] = _median(size[block.coordinates])
    return shared


def _median(size: Tensor) -> Tensor:
    """Return the median of the finite sizes (n,) that are not zero, of some of them where they are many; 1 of none."""
    if len(size) > _MANY:
        size = size[torch.randint(len(size), (_MANY,), generator=torch.Generator().manual_seed(0)).to(size.device)]
    known = torch.where((size >= _NOTHING) & (size < torch.inf), size, torch.nan)
    return known.nanmedian().nan_to_num(1.0) if len(known) else size.new_ones(())


def own_or_shared(lengths: Scales) -> Tensor:
    """Return each coordinate's own length, or its tensor's where it is zero; (n,)."""
    return torch.where(lengths.own > 0, lengths.own, lengths.shared)
