"""First look at entries: few central differences, extrapolated, and a mask of the entries left in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gradverify.core.decide.compare import judge_smooth
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.doubt import in_doubt
from gradverify.core.decide.tiles import Tile, claims_on, narrowed, plain_entries, tiles
from gradverify.core.decide.verdict import Judged, copy_of, put, span, unwritten
from gradverify.core.estimate import richardson
from gradverify.core.estimate.samples import (
    Estimate,
    Samples,
    central_differences,
    difference_noise,
    finest_noise,
    finite_to_finest,
    is_unchanged,
    is_vanished,
)
from gradverify.core.estimate.smoothness import bends_in_first_look
from gradverify.core.estimate.stencil import Stencil
from gradverify.core.estimate.tableau import central_tableau
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import is_double
from gradverify.core.model.magnitudes import all_set, any_set

_Extrapolate = Callable[[Noise, Samples, Tensor], Estimate]  # the tensor bounds the noise of the finest difference
_FEW = 1 / 8  # of a tile: with fewer open entries, only these are judged one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Verdicts of the first look, all (C, m)."""

    judged: Judged
    bends: Tensor  # bool: the second differences are not those of a smooth function
    doubt: Tensor  # bool: needs more steps


def first_look(context: JudgingContext, stencil: Stencil) -> First:
    """Judge the sampled column groups by three steps, extrapolated twice (Richardson)."""
    return _looked(context, stencil, _at_a_glance)


def look_from_afar(context: JudgingContext, stencil: Stencil) -> First:
    """Judge the sampled column groups by longer steps, over which the derivative exceeds the rounding noise."""
    return _looked(context, stencil, partial(_judged, extrapolate=_by_tableau))


def _looked(context: JudgingContext, stencil: Stencil, look: Callable[[Tile], First]) -> First:
    """Judge all entries of the sampled column groups, tile by tile."""
    claimed = claims_on(context, stencil)
    whole: First | None = None
    for tile in tiles(context, stencil):
        found = look(tile)
        if found.doubt.shape == claimed.shape:
            return found
        whole = _blank(claimed) if whole is None else whole
        _write(whole, found, tile.rows, tile.outputs)
    return _blank(claimed) if whole is None else whole


def _at_a_glance(tile: Tile) -> First:
    """Judge a tile by its polynomials, and the entries that they leave open by Richardson extrapolation."""
    if not tile.stencil.length_index.shape[1] or not is_double(tile.sampled):
        return _judged(tile, _by_richardson)
    judged, fine = plain_entries(tile)
    if all_set(fine):
        return _settled(judged)
    open_ = fine.logical_not_()
    rows, outputs = span(open_)
    if len(rows) * len(outputs) > _FEW * open_.numel():
        return _judged(tile, _by_richardson)
    found, judged = _judged(narrowed(tile, rows, outputs), _by_richardson), copy_of(judged)
    put(judged, open_, rows, outputs, found.judged)
    place = (rows.unsqueeze(1), outputs)
    bends, doubt = torch.zeros_like(open_), torch.zeros_like(open_)
    bends[place], doubt[place] = found.bends & open_[place], found.doubt & open_[place]
    return First(judged=judged, bends=bends, doubt=doubt)


def _settled(judged: Judged) -> First:
    """Return the first look at entries that all match beyond doubt."""
    return First(judged=judged, bends=judged.kinked, doubt=judged.kinked)


def _by_richardson(noise: Noise, samples: Samples, level: Tensor) -> Estimate:
    del noise
    return richardson.extrapolate(samples, level)


def _by_tableau(noise: Noise, samples: Samples, level: Tensor) -> Estimate:
    del level
    usable = finite_to_finest(central_differences(samples), is_vanished(samples))
    return central_tableau(samples, difference_noise(noise, samples), usable)


def _judged(tile: Tile, extrapolate: _Extrapolate) -> First:
    sampled, noise, claimed, allowance = tile.sampled, tile.noise, tile.claimed, tile.allowance
    samples = tile.samples
    level, zero = finest_noise(noise, samples), allowance.zero
    judged = judge_smooth(claimed, extrapolate(noise, samples, level), allowance, zero)
    own = claimed.abs()
    bends = bends_in_first_look(sampled, samples, level).logical_or_(judged.bar == torch.inf)
    # If an output is constant and the claim is not zero, the largest steps have the smallest error bar.
    idle = (judged.numeric == 0).logical_and_(own > zero)
    if any_set(idle):
        idle &= is_unchanged(sampled, samples).all(dim=1)
    return First(judged=judged, bends=bends, doubt=in_doubt(judged, bends | idle, own, allowance))


def _blank(like: Tensor) -> First:
    """Return memory for the verdicts on entries of this shape."""
    bends, doubt = torch.empty((2, *like.shape), dtype=torch.bool, device=like.device)
    return First(judged=unwritten(like), bends=bends, doubt=doubt)


def _write(whole: First, found: First, rows: slice, outputs: slice) -> None:
    """Write the verdicts on some entries into those on all."""
    for name in ("numeric", "bar", "error", "allowed", "code", "reason"):
        getattr(whole.judged, name)[rows, outputs] = getattr(found.judged, name)
    whole.bends[rows, outputs] = found.bends
    whole.doubt[rows, outputs] = found.doubt
