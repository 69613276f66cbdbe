"""Which entries are looked at again: those in doubt, and a sample of the accused."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.tolerance import EntryTolerance, threshold_of
from gradverify.core.decide.verdict import Code, Judged
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.magnitudes import all_set, any_set

DOUBT = 7.5e-7  # a bar above this part of the entry's own size, beside the tolerance, may hide an error of 1e-6
_BLIND, _FAINT = 1e-3, 1e-8  # much smaller entries, only where the bar would hide much more
_MATTERS = 1e-4  # where the entry is at least this part of the largest in its row or column
_HIDDEN = 1e-2  # of the largest beside it, which the bar of a claim of nothing may hide
_FEW = 1 / 8  # of the entries are gone through apart from the rest


def in_doubt(judged: Judged, suspicious: Tensor, own: Tensor, allowance: EntryTolerance) -> Tensor:
    """Tell which entries of the cheap pass deserve the thorough one, (C, m): those not settled beyond doubt.

    An entry that matters (see `matters`) is also looked at again when its bar would hide a small relative error, and
    one of next to nothing when it would hide a number as large as others are.
    """
    bar, doubt = BAR_FACTOR * judged.bar, (judged.code != Code.MATCH).logical_or_(suspicious)
    unsure = bar > DOUBT * own
    if not any_set(unsure):
        return doubt
    unsure &= is_significant(own, allowance.beside)
    nothing = own <= _FAINT * allowance.beside
    blind = (bar > _BLIND * own).logical_and_(nothing.logical_not())
    usual = torch.where(allowance.beside > 0, allowance.beside, allowance.largest)  # of a whole column of nothing
    hiding = (bar > _HIDDEN * usual).logical_and_(nothing).logical_and_(usual > 0)
    return doubt.logical_or_(unsure).logical_or_(blind).logical_or_(hiding)


def is_resolved_beside(bar: Tensor, own: Tensor, allowance: EntryTolerance) -> Tensor:
    """Tell which bars leave no doubt (see `in_doubt`) of entries that match; (C, m)."""
    clear = bar <= own * (DOUBT / BAR_FACTOR)  # of most entries, without a look at their neighbours
    if all_set(clear):
        return clear
    left = clear.logical_not().nonzero(as_tuple=True)
    if len(left[0]) > _FEW * clear.numel():
        return _tells_enough(bar, own, allowance.beside, allowance.scale, threshold_of(allowance))
    if len(left[0]):
        beside, scale = allowance.beside[left], allowance.scale[left]
        clear[left] = _tells_enough(bar[left], own[left], beside, scale, threshold_of(allowance))
    return clear


def is_noise_limited(noise: Tensor, own: Tensor) -> Tensor:
    """Tell which entries would stay in doubt for the `noise` of their differences alone; both (C, m)."""
    return BAR_FACTOR * noise > DOUBT * own


def is_significant(size: Tensor, beside: Tensor) -> Tensor:
    """Tell which entries are of some size `beside` the largest of their row or of their column."""
    return size > _MATTERS * beside


def _tells_enough(bar: Tensor, own: Tensor, beside: Tensor, scale: Tensor, threshold: float) -> Tensor:
    share = torch.where(is_significant(own, beside), DOUBT, _BLIND)
    least = torch.maximum(own, _FAINT * beside).mul_(share)
    return BAR_FACTOR * bar <= torch.minimum(least, torch.maximum(own, scale).mul_(threshold))
