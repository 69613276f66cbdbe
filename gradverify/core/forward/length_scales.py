"""Length scales of the input coordinates, of which steps are fractions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.limits import SUBSET
from gradverify.core.model.magnitudes import TINY

_FLOOR = 2.0**-2  # times the tensor's shared length: smallest length for the cheap steps
UNDERFLOW = TINY * 2.0**60  # smaller sizes count as zero: a small fraction of them underflows
_OVERFLOW = 1 / UNDERFLOW  # larger sizes count as infinite: a small multiple of them overflows
_FILL = 2.0**53  # larger sizes, beside which 1 is lost, say nothing of others: they may be the fill value of a mask


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthScales:
    """Length scales per input coordinate, each (n,) float64."""

    own: Tensor  # |x_j|, 0 if that is below UNDERFLOW, shared if it is above _OVERFLOW or not finite
    shared: Tensor  # median of the non-zero |x| below _FILL in the tensor, 1 if there are none
    step: Tensor  # length for the cheap steps: own, but at least _FLOOR of shared

    @property
    def nonzero(self) -> Tensor:
        """Each coordinate's own length, or its tensor's shared one if that is zero; (n,)."""
        return torch.where(self.own > 0, self.own, self.shared)


def scales(sampled: Sampler) -> LengthScales:
    """Return the length scales of every input coordinate."""
    own = sampled.point.abs()
    smallest, largest = map(float, torch.aminmax(own)) if own.numel() else (1.0, 1.0)
    known = own
    if not UNDERFLOW <= smallest <= largest < _FILL:
        known = torch.where((own >= UNDERFLOW) & (own < _FILL), own, torch.nan)
    shared = _shared(sampled, known)
    if not largest < _OVERFLOW:
        own = torch.where(own < _OVERFLOW, own, shared)
    if not smallest >= UNDERFLOW:
        own.masked_fill_(own < UNDERFLOW, 0.0)
    floor = (shared if len(sampled.inputs) > 1 else shared[:1]) * _FLOOR
    return LengthScales(own=own, shared=shared, step=torch.maximum(own, floor))


def _shared(sampled: Sampler, size: Tensor) -> Tensor:
    """Return for each coordinate the median of `size` (n,) in its input, ignoring NaN; (n,)."""
    if len(sampled.inputs) == 1:
        return _median(size).expand_as(size)
    shared = torch.empty_like(size)
    for block in sampled.inputs:
        shared[block.coordinates] = _median(size[block.coordinates])
    return shared


def _median(size: Tensor) -> Tensor:
    """Return the median of the sizes (n,) that are not NaN, or of a random subset of many; 1 if there are none; ()."""
    if size.numel() > SUBSET:
        size = size[torch.randint(size.numel(), (SUBSET,), generator=torch.Generator().manual_seed(0)).to(size.device)]
    return size.nanmedian().nan_to_num(1.0) if size.numel() else size.new_ones(())
