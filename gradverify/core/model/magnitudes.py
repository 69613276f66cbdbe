"""Magnitudes of tensors: largest ones, length scales of the inputs, any and all of masks, sums and running extrema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, coordinates_in, total
from gradverify.core.model.limits import SUBSET, portion
from gradverify.core.tuning import CLEARLY_LESS
from gradverify.nested import Named

TINY = torch.finfo(torch.float64).tiny  # smallest normal number: keeps logarithms and quotients finite
_MANY = 1 << 12  # values: with fewer, one call per rung costs more than torch's cummax, which is not vectorised
UNDERFLOW = TINY * 2.0**60  # smaller sizes count as zero: a small fraction of them underflows
_OVERFLOW = 1 / UNDERFLOW  # larger sizes count as infinite: a small multiple of them overflows
_FILL = 2.0**53  # larger sizes, beside which 1 is lost, say nothing of others: they may be the fill value of a mask


def equal_or_nan(one: Tensor, other: Tensor) -> Tensor:
    """Mask of equal numbers; NaN equals NaN."""
    return (one == other) | (one.isnan() & other.isnan())


def identical(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors of one shape hold equal numbers; NaN equals NaN."""
    return torch.equal(one, other) or all_set(equal_or_nan(one, other))


def finite_size(values: Tensor) -> Tensor:
    """Return the magnitudes of the values as a new tensor, 0 where they are not finite."""
    return values.abs().nan_to_num_(0.0, 0.0, 0.0)


def largest_in_tensor(values: Tensor, outputs: Sequence[Block]) -> Tensor:
    """Return for each value the largest finite magnitude in its output tensor, 0 if there is none; (m,)."""
    sizes = finite_size(values)
    for block in outputs:
        if block.stop > block.start:
            whole = slice(block.start, block.stop)  # both parts of a complex tensor: rounding mixes them
            sizes[whole] = sizes[whole].max()
    return sizes


def size_of_number(values: Tensor, outputs: Sequence[Block]) -> Tensor:
    """Return the magnitude of each value, for the parts of a complex number that of the larger one; (m,).

    Each part of a product of complex numbers is rounded like the other.
    """
    sizes = finite_size(values)
    for block in outputs:
        if block.step == 2 and block.stop - block.start == 2 * total(block.shape):  # the real part
            numbers = sizes[block.start : block.stop].view(-1, 2)
            numbers.copy_(numbers.amax(dim=1, keepdim=True).expand_as(numbers))
    return sizes


def unit_roundoff(outputs: Sequence[Named], like: Tensor) -> Tensor:
    """Return the unit roundoff (eps / 2) of each value's own dtype; (m,)."""
    units = [like.new_tensor(torch.finfo(output.tensor.dtype).eps / 2) for output in outputs]
    parts = [unit.expand(coordinates_in(output.tensor)) for unit, output in zip(units, outputs, strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat([like[:0], *parts])


def any_set(flags: Tensor) -> bool:
    """Return True if any flag is set; `flags` is bool or uint8."""
    return flags.numel() > 0 and bool(flags.view(torch.uint8).amax())


def all_set(flags: Tensor) -> bool:
    """Return True if all flags are set; `flags` is bool or uint8."""
    return flags.numel() == 0 or bool(flags.view(torch.uint8).amin())


def last_set(flags: Tensor) -> Tensor:
    """Return the index of the last rung that is flagged, 0 where none is; (C, K, m) -> (C, 1, m)."""
    order = torch.arange(1, flags.shape[1] + 1, device=flags.device).view(1, -1, 1)
    return (flags * order).argmax(dim=1, keepdim=True)


def weighted_sums(weights: Tensor, rows: Tensor) -> Tensor:
    """Return the sums of the rows (p, m) with each set of weights (k, p); (k, m).

    Few numbers are multiplied one by one: a product of matrices would wait for all threads, on a busy machine for some
    milliseconds.
    """
    weights = weights.to(rows.device)
    if weights.numel() * rows.shape[1] > portion(rows):
        return weights @ rows
    return (weights.unsqueeze(2) * rows).sum(dim=1)


def suffix_maximum(values: Tensor) -> Tensor:
    """Return the maximum over each rung and all later ones; values (C, K, m) without NaN, rungs along dimension 1."""
    if values.numel() < _MANY:
        return values.flip(1).cummax(dim=1).values.flip(1)
    result = values.clone()
    rungs = result.unbind(dim=1)
    for k in reversed(range(len(rungs) - 1)):
        torch.maximum(rungs[k], rungs[k + 1], out=rungs[k])
    return result


def suffix_minimum(values: Tensor) -> Tensor:
    """Return the minimum over each rung and all later ones; values (C, K, m) without NaN, rungs along dimension 1."""
    return suffix_maximum(values.neg()).neg_()


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthScales:
    """Length scales per input coordinate, each (n,) float64."""

    own: Tensor  # |x_j|, 0 if that is below UNDERFLOW, shared if it is above _OVERFLOW or not finite
    shared: Tensor  # median of the non-zero |x| below _FILL in the tensor, 1 if there are none
    step: Tensor  # length for the cheap steps: own, but at least CLEARLY_LESS of shared

    @property
    def nonzero(self) -> Tensor:
        """Each coordinate's own length, or its tensor's shared one if that is zero; (n,)."""
        return torch.where(self.own > 0, self.own, self.shared)


def scales(point: Tensor, inputs: Sequence[Block]) -> LengthScales:
    """Return the length scales of every input coordinate; `point` is (n,)."""
    own = point.abs()
    shared = _shared(torch.where((own >= UNDERFLOW) & (own < _FILL), own, torch.nan), inputs)
    own = torch.where(own < _OVERFLOW, own, shared)
    own.masked_fill_(own < UNDERFLOW, 0.0)
    floor = (shared if len(inputs) > 1 else shared[:1]) * CLEARLY_LESS
    return LengthScales(own=own, shared=shared, step=torch.maximum(own, floor))


def _shared(size: Tensor, inputs: Sequence[Block]) -> Tensor:
    """Return for each coordinate the median of `size` (n,) in its input, ignoring NaN; (n,)."""
    if len(inputs) == 1:
        return _median(size).expand_as(size)
    shared = torch.empty_like(size)
    for block in inputs:
        shared[block.coordinates] = _median(size[block.coordinates])
    return shared


def _median(size: Tensor) -> Tensor:
    """Return the median of the sizes (n,) that are not NaN, or of a random subset of many; 1 if there are none; ()."""
    if size.numel() > SUBSET:
        size = size[torch.randint(size.numel(), (SUBSET,), generator=torch.Generator().manual_seed(0)).to(size.device)]
    return size.nanmedian().nan_to_num(1.0) if size.numel() else size.new_ones(())
