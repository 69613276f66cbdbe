"""Kinks, jumps and edges of the domain, told apart from a wrong gradient.

A kink at distance d from the point looks smooth for h < d, so only steps finer than the finest one that looks nonsmooth
are trusted; if none of those can tell, the point counts as lying on the kink.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.estimate.one_sided import between, finite_one, sides
from gradverify.core.estimate.samples import (
    NOISE_FACTOR,
    Estimate,
    Samples,
    central,
    difference_noise,
    joined,
    one_sided,
    rounded_on_the_way,
    to_the_end,
    trusted,
    unmoved,
    void,
)
from gradverify.core.estimate.smoothness import (
    Smoothness,
    at_last,
    is_steady,
    largest_moves,
    or_before,
    shape_of,
    up_to_the_last,
)
from gradverify.core.estimate.staircase import rounding_jump, stair, tilted_stair
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import HALVINGS, central_tableau, coarse_steps, fine_steps, halving_steps
from gradverify.core.forward.length_scales import scales
from gradverify.core.forward.noise import Noise, measure
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import any_set, suffix_maximum

_SEEN = 2  # steps at which a bend is calm, to say that the point is smooth
_RESOLVED = 1e-5  # a bar this small against the bend tells the two sides apart
_CANCELLED = 4.0  # units of rounding, of the steepest slope around
_MOST = 2.0**-10  # of the inputs, that such a difference may be in whatever precision
_GROWN = 2.0**7  # by how much an output that is a difference of equal numbers may have amplified the inputs
_FAR = slice(5, 12)  # rungs that are neither as long as the input's scale nor so short as to lie within one stair
_FLIGHT = 2.0**-20  # stairs above this part of the output are none of float32
_AMPLIFIED = 2.0**6  # times what rounding to a lower precision leaves on the way
_CLOSE = 2.0**-20  # of the largest step: nearer than that, what lies there has been looked at
_SETTLED = 0.05  # one-sided derivatives this sure, relative to their distance, make a kink


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What the thorough pass says of each entry, all (C, m)."""

    estimate: Estimate  # of the derivative, or at an edge of the one-sided one
    low: Tensor  # smallest value that is a derivative here: below estimate.value only at a kink
    high: Tensor
    kink: Tensor  # bool
    jump: Tensor  # bool
    edge: Tensor  # bool: one side of the point is outside the domain
    outside: Tensor  # bool: the forward is not finite at the point itself
    seen: Tensor  # the steepest slope within the length scale, which zeros are resolved against
    close: Tensor  # bool: an axis shows a kink or jump so close that only the finest steps tell it from the point
    idle: Tensor  # bool: the output never moved
    hidden: Tensor  # what may stand in place of a zero, because cancellation would hide it
    stairs: Tensor  # bool: the point lies on a stair of a flight, too high for one of float32: flat here, steep beyond
    height: Tensor  # of the stair that the point lies on, 0 where on none
    far: tuple[Tensor, Tensor]  # between what the differences at larger steps lie
    unsteady: Tensor  # bool: the samples themselves show noise, or something that is not smooth
    scatter: Tensor  # the noise that the samples themselves show
    rounding_jump: Tensor  # by how much they depart from the estimate all at once, see `leap`


def examine(sampled: Sampler, noise: Noise, samples: Samples, own: Tensor, known: Tensor | None = None) -> Local:
    """Judge every entry of a ladder of samples: smooth, kink, jump or edge, with the derivative where there is one.

    `own` (C, 1 or m) is the magnitude of the input that an entry is by; `known` (C, m) is the height of stairs that a
    shorter ladder has shown: finer steps may hide them again.
    """
    height = stair(sampled, samples)
    if known is not None:
        height = torch.maximum(height, known)
    difference, nothing = central(samples), void(samples)
    finite = trusted(difference, nothing)
    scatter = _scatter(samples)
    measured = difference_noise(noise, samples)
    measured = torch.fmax(measured, rounded_on_the_way(sampled, samples, difference, own))
    level, shape, smooth = _smooth(
        sampled, samples, finite, _raised(samples, torch.maximum(height.unsqueeze(1), scatter), measured), own
    )
    tilted = tilted_stair(sampled, samples, smooth)
    if any_set(tilted > height):
        height = torch.maximum(height, tilted)
        level, shape, smooth = _smooth(
            sampled, samples, finite, _raised(samples, torch.maximum(height.unsqueeze(1), scatter), measured), own
        )
    left, right = sides(sampled, samples, level, up_to_the_last(shape.rough) | ~shape.rough.any(dim=1, keepdim=True))
    size = at_last(shape.rough, shape.size)
    seen_smooth = (shape.calm & ~up_to_the_last(shape.rough)).sum(dim=1) >= _SEEN
    nonsmooth = shape.rough.any(dim=1) & (smooth.bar > _RESOLVED * size) & ~seen_smooth
    edge = ~finite.any(dim=1)
    torn = at_last(shape.rough, or_before(shape.torn).double()).bool()
    jump = nonsmooth & torn & is_steady(shape.rough, largest_moves(sampled, samples))
    settled = (left.bar + right.bar) < _SETTLED * size
    kink = nonsmooth & ~jump & settled & ~edge & is_steady(shape.rough, shape.size)
    one = finite_one(left, right)
    reach = samples.forth.expand_as(shape.size)
    seen = _steepest(sampled, samples)
    low, high, outer = between(left, right, smooth, size)
    estimate = Estimate(
        value=torch.where(edge, one.value, torch.where(kink, (low + high) / 2, smooth.value)),
        bar=torch.where(edge, one.bar, torch.where(kink & outer, torch.maximum(left.bar, right.bar), smooth.bar)),
    )
    return Local(
        estimate=estimate,
        low=torch.where(kink, low, estimate.value),
        high=torch.where(kink, high, estimate.value),
        kink=kink,
        jump=jump & ~edge,
        edge=edge,
        seen=seen,
        close=shape.rough.any(dim=1) & (at_last(shape.rough, reach) < _CLOSE * samples.forth[:, 0]),
        idle=unmoved(sampled, samples).all(dim=1),
        hidden=_cancelled(sampled, samples, seen),
        stairs=_is_flat(sampled, samples) & (height > _highest(sampled)),
        height=height,
        far=_far(difference),
        unsteady=shape.rough.any(dim=1) | (scatter[:, 0] > noise.level),
        scatter=scatter[:, 0],
        rounding_jump=rounding_jump(sampled, samples, measured, estimate),
        outside=~torch.isfinite(sampled.value).expand_as(edge) & ~torch.isfinite(estimate.value),
    )


def kinked_columns(sampled: Sampler, columns: Tensor, seed: int) -> Tensor:
    """Tell for each coordinate (C,) whether some output has a kink in it at the point, or next to it.

    Columns beyond the problem's own primals (cotangents) have none.
    """
    lengths = scales(sampled)
    noise = measure(sampled, lengths, seed)
    column_groups = single_columns(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    kinked = torch.zeros(len(columns), dtype=torch.bool, device=columns.device)
    for place, column in enumerate(columns.tolist()):
        if column < sampled.point.numel():
            own = torch.tensor([column], device=columns.device)
            steps = (halving_steps(lengths), coarse_steps(lengths), fine_steps(lengths, own))
            ladder = reduce(joined, (sample(sampled, column_groups, own, part) for part in steps))
            local = examine(sampled, noise, ladder, lengths.own[own].unsqueeze(1))
            kinked[place] = (local.kink | local.close).any()
    return kinked


def _highest(sampled: Sampler) -> Tensor:
    """Return how high stairs of a lower precision may be, that forward is computed in as a whole or in part; (m,)."""
    return (_FLIGHT * sampled.value.abs()).clamp(min=_AMPLIFIED * sampled.stair())


def _is_flat(sampled: Sampler, samples: Samples) -> Tensor:
    """Tell which outputs do not move at the finest step: those on a tilted stair do; (C, m)."""
    unmoving = unmoved(sampled, samples)
    return at_last(~void(samples).expand_as(unmoving), unmoving.double()).bool()


def _smooth(
    sampled: Sampler, samples: Samples, finite: Tensor, level: Tensor, own: Tensor
) -> tuple[Tensor, Smoothness, Estimate]:
    """Return the noise of the differences again, how the function looks, and the derivative if it is smooth."""
    shape = shape_of(sampled, samples, level, own)
    usable = finite & ~up_to_the_last(shape.rough)
    return level, shape, central_tableau(samples, level, usable)


def _raised(samples: Samples, unsteady: Tensor, level: Tensor) -> Tensor:
    """Return the noise of the differences, where the forward is off by as much as `unsteady`; all (C, K, m)."""
    raised = torch.maximum(level, NOISE_FACTOR * unsteady / samples.forth)
    return raised.nan_to_num(torch.inf, torch.inf)


def _scatter(samples: Samples) -> Tensor:
    """Return for each rung the noise of the forward that finer rungs give away; (C, K, m).

    From step to step, a smooth function's differences settle and a jump's gap stays. Where neither happens and the
    differences drift apart instead, it is noise, and coarser steps have at least as much of it.
    """
    difference, step = torch.where(void(samples), torch.nan, central(samples)), samples.forth
    change = difference.diff(dim=1).abs()
    drifting = change[:, 1:] > change[:, :-1]
    gap_change = (difference * step).diff(dim=1).abs()[:, 1:]
    found = torch.where(drifting, torch.minimum(change[:, 1:] * step[:, 2:], gap_change), 0.0).nan_to_num(0.0, 0.0)
    noise = torch.cat([torch.zeros_like(difference[:, :2]), found], dim=1)
    return suffix_maximum(noise)


def _cancelled(sampled: Sampler, samples: Samples, seen: Tensor) -> Tensor:
    """Return what cancellation may hide where an output does not move at all but for the largest steps; (C, m).

    Where terms cancel, they leave rounding of their own size, as the steepest slope around shows it, and where nothing
    at all is left, of the size that the inputs may have grown to.
    """
    unmoving = to_the_end(unmoved(sampled, samples))  # rounding may leave it where it was at a single rung
    inputs = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0).amax() / samples.forth[:, 0]
    grown = (_MOST / sampled.unit).clamp(max=_GROWN)
    size = torch.where(sampled.value == 0, torch.maximum(seen, grown * inputs), seen)
    # What does not move it may still do so by less than the rounding of its tensor's largest.
    longest = torch.where(unmoving, samples.forth, 0.0).amax(dim=1)
    least = sampled.size / longest.clamp(min=torch.finfo(torch.float64).tiny)
    return _CANCELLED * sampled.unit * torch.where(unmoving[:, HALVINGS - 1], torch.maximum(size, least), 0.0)


def _far(difference: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest difference at steps well above the finest; both (C, m)."""
    some = difference[:, _FAR]
    low, high = some.nan_to_num(torch.inf).amin(dim=1), some.nan_to_num(-torch.inf, -torch.inf, -torch.inf).amax(dim=1)
    return torch.where(torch.isfinite(low), low, torch.nan), torch.where(torch.isfinite(high), high, torch.nan)


def _steepest(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the largest slope from the point to any sample on the coarsest rungs; (C, m)."""
    left, right = one_sided(sampled, samples)
    slopes = torch.maximum(left.abs().nan_to_num(0.0, 0.0), right.abs().nan_to_num(0.0, 0.0))
    return slopes[:, :HALVINGS].amax(dim=1)
