"""The lengths on which inputs vary: what a step is a fraction of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.forward.sampler import Sampler

_FLOOR = 2.0**-2  # a cheap step never goes below this part of the tensor's own scale
_MANY = 1 << 14  # sizes, of which a median is close enough to that of all
_NOTHING = torch.finfo(torch.float64).tiny * 2.0**60  # what is smaller cannot be moved by a small part of itself


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthScales:
    """Length scales per input coordinate, each (n,) float64."""

    own: Tensor  # |x_j|, zero where the coordinate is zero
    shared: Tensor  # median of the non-zero |x| of the tensor, 1 where all are zero
    step: Tensor  # what a step is taken relative to: own, with a part of shared as floor


def scales(sampled: Sampler) -> LengthScales:
    """Return the length scales of every input coordinate."""
    own = sampled.point.abs()
    least, most = map(float, torch.aminmax(own)) if own.numel() else (1.0, 1.0)
    known = own
    if not _NOTHING <= least <= most < math.inf:
        known = torch.where((own >= _NOTHING) & (own < torch.inf), own, torch.nan)
    shared = _shared(sampled, known)
    if not most < math.inf:
        own = torch.where(own < torch.inf, own, shared)
    if not least >= _NOTHING:
        own.masked_fill_(own < _NOTHING, 0.0)
    floor = (shared if len(sampled.inputs) > 1 else shared[:1]) * _FLOOR
    return LengthScales(own=own, shared=shared, step=torch.maximum(own, floor))


def _shared(sampled: Sampler, size: Tensor) -> Tensor:
    """Return the median of each input's sizes for its entries, (n,); those that are no sizes are nan."""
    if len(sampled.inputs) == 1:
        return _median(size).expand_as(size)
    shared = torch.empty_like(size)
    for block in sampled.inputs:
        shared[block.coordinates] = _median(size[block.coordinates])
    return shared


def _median(size: Tensor) -> Tensor:
    """Return the median of the sizes (n,) that are numbers, of some of them where they are many; 1 of none."""
    if size.numel() > _MANY:
        size = size[torch.randint(size.numel(), (_MANY,), generator=torch.Generator().manual_seed(0)).to(size.device)]
    return size.nanmedian().nan_to_num(1.0) if size.numel() else size.new_ones(())


def own_or_shared(lengths: LengthScales) -> Tensor:
    """Return each coordinate's own length, or its tensor's where it is zero; (n,)."""
    return torch.where(lengths.own > 0, lengths.own, lengths.shared)
