"""Criteria for judging an entry again at other steps."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.tolerance import EntryTolerance, threshold_of
from gradverify.core.decide.verdict import Code, Judged
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.magnitudes import all_set, any_set

DOUBT = 7.5e-7  # of the entry: ten error bars above this, added to the tolerance, may hide an error of 1e-6
_WIDE, _NEGLIGIBLE = 1e-3, 1e-8  # as DOUBT, of insignificant entries; size beside the row and column
_SIGNIFICANT = 1e-4  # of the largest in its row or column: larger entries are significant
_HIDDEN = 1e-2  # of the largest in its row or column: what the error bar of a negligible entry may hide
_FEW = 1 / 8  # of the entries: fewer are gathered and tested apart


def in_doubt(judged: Judged, suspicious: Tensor, own: Tensor, allowance: EntryTolerance) -> Tensor:
    """Mask of entries (C, m) to judge again: those that do not match, are suspicious, or have a wide error bar.

    The bar of a significant entry must not hide a small relative error, and the bar of a negligible entry must not hide
    a number as large as others in its row or column. `own` (C, m) is the magnitude of the claims.
    """
    bar, doubt = BAR_FACTOR * judged.bar, (judged.code != Code.MATCH).logical_or_(suspicious)
    unsure = bar > DOUBT * own
    if not any_set(unsure):
        return doubt
    unsure &= is_significant(own, allowance.row_column_size)
    negligible = own <= _NEGLIGIBLE * allowance.row_column_size
    wide = (bar > _WIDE * own).logical_and_(negligible.logical_not())
    beside = allowance.row_column_size
    neighbour = torch.where(beside > 0, beside, allowance.largest)  # the largest claim for rows or columns of zeros
    hiding = (bar > _HIDDEN * neighbour).logical_and_(negligible).logical_and_(neighbour > 0)
    return doubt.logical_or_(unsure).logical_or_(wide).logical_or_(hiding)


def is_resolved_beside(bar: Tensor, own: Tensor, allowance: EntryTolerance) -> Tensor:
    """Mask of error bars narrow enough to settle a matching entry (see `in_doubt`); (C, m)."""
    resolved = bar <= own * (DOUBT / BAR_FACTOR)  # sufficient for most entries, whatever their rows and columns
    if all_set(resolved):
        return resolved
    remaining = resolved.logical_not().nonzero(as_tuple=True)
    if len(remaining[0]) > _FEW * resolved.numel():
        return _is_narrow(bar, own, allowance.row_column_size, allowance.scale, threshold_of(allowance))
    if len(remaining[0]):
        beside, scale = allowance.row_column_size[remaining], allowance.scale[remaining]
        resolved[remaining] = _is_narrow(bar[remaining], own[remaining], beside, scale, threshold_of(allowance))
    return resolved


def is_noise_limited(noise: Tensor, own: Tensor) -> Tensor:
    """Mask of entries that the noise of their differences alone keeps in doubt; all (C, m)."""
    return BAR_FACTOR * noise > DOUBT * own


def is_significant(size: Tensor, beside: Tensor) -> Tensor:
    """Mask of entries that are significant beside the largest of their row and column, `beside`."""
    return size > _SIGNIFICANT * beside


def _is_narrow(bar: Tensor, own: Tensor, beside: Tensor, scale: Tensor, threshold: float) -> Tensor:
    """Mask of error bars that are narrow beside the entry, its row and column, and its scale."""
    share = torch.where(is_significant(own, beside), DOUBT, _WIDE)
    least = torch.maximum(own, _NEGLIGIBLE * beside).mul_(share)
    return BAR_FACTOR * bar <= torch.minimum(least, torch.maximum(own, scale).mul_(threshold))
