"""Detection of kinks, jumps and edges of the domain, and the derivatives there.

A kink at distance d from the point looks smooth for h < d. So only steps finer than the finest one that looks nonsmooth
are used; if they do not resolve the derivative, the point counts as lying on the kink.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate.samples import (
    BAR_FACTOR,
    NOISE_FACTOR,
    Estimate,
    Samples,
    difference_noise,
    finite_to_finest,
    input_rounding_noise,
    of_steps,
    set_to_finest,
    sharpest,
)
from gradverify.core.estimate.smoothness import (
    at_last_flagged,
    classify_steps,
    flagged_or_next,
    is_steady,
    rounding_jump,
    up_to_last_flagged,
)
from gradverify.core.estimate.tableau import COARSE, HALVINGS, accepted_interval, central_tableau, sides
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler
from gradverify.core.forward.step_noise import highest_stairs
from gradverify.core.model.magnitudes import TINY, any_set, finite_size, suffix_maximum
from gradverify.core.tuning import (
    CANCELLATION_UNITS,
    LARGEST_CANCELLATION,
    RESULT_UNITS,
    SEVERAL,
    SMALL_PART,
)

_RESOLVED = 1e-5  # relative to the bend: with a smaller bar, the derivative shows on which side the point lies
_LAST_HALVING = 2.0 ** (1 - HALVINGS)  # of the steps that are halved, relative to the first
_SLIGHT = 1e-3  # of the larger slope: greatest gap between the slopes of a kink that curvature hides


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderResult:
    """Result of the ladder pass for each entry, all (C, m)."""

    estimate: Estimate  # of the derivative; at an edge, of the one-sided one
    low: Tensor  # smallest accepted derivative; below estimate.value only at a kink
    high: Tensor  # largest accepted derivative
    kink: Tensor  # bool
    jump: Tensor  # bool
    edge: Tensor  # bool: one side of the point is outside the domain
    undefined: Tensor  # bool: the forward is not finite at the point, and no derivative was found
    steepest: Tensor  # steepest slope within the length scale; zeros are resolved relative to it
    close_kink: Tensor  # bool: there is a kink or jump so close that only the finest steps stay clear of it
    constant: Tensor  # bool: the output never changed
    hidden_by_cancellation: Tensor  # derivative that cancellation may hide: it may be claimed in place of a zero
    high_stair: Tensor  # bool: constant here, on a stair higher than rounding to a lower precision explains
    unsteady: Tensor  # bool: the samples themselves show noise, or are not smooth
    scatter: Tensor  # noise of the forward that the samples themselves show
    rounding_jump: Tensor  # deviation of the differences from the estimate at a sudden jump, see `rounding_jump`


def classify_ladder(
    sampled: Sampler, noise: Noise, samples: Samples, own: Tensor, height: Tensor, *, sparse: bool = False
) -> LadderResult:
    """Classify every entry of a ladder of samples as smooth, kink, jump or edge, and estimate its derivative.

    `own` (C, 1 or m) is the magnitude of the input, `height` (C, m) that of the stair which the point lies on, 0 if on
    none. Of a `sparse` ladder, every second step is too few to tell a slight kink.
    """
    finite = finite_to_finest(samples.difference, samples.vanished)
    scatter = _scatter(samples)
    measured = difference_noise(noise, samples)
    measured = torch.fmax(measured, input_rounding_noise(sampled, samples, own))
    unsteady = NOISE_FACTOR * torch.maximum(height.unsqueeze(1), scatter) / samples.forth
    level = torch.maximum(measured, unsteady).nan_to_num(torch.inf, torch.inf)
    shape = classify_steps(sampled, samples, level, own)
    smooth = central_tableau(samples, level, finite & ~up_to_last_flagged(shape.rough))
    left, right = sides(samples, level, up_to_last_flagged(shape.rough) | ~shape.rough.any(dim=1, keepdim=True))
    size = at_last_flagged(shape.rough, shape.size)
    seen_smooth = (shape.smooth & ~up_to_last_flagged(shape.rough)).sum(dim=1) >= SEVERAL
    nonsmooth = shape.rough.any(dim=1) & (smooth.bar > _RESOLVED * size) & ~seen_smooth
    edge = ~finite.any(dim=1)
    torn = at_last_flagged(shape.rough, flagged_or_next(shape.torn).double()).bool()
    jump = nonsmooth & torn & is_steady(shape.rough, samples.largest_change)
    settled = (left.bar + right.bar) < SMALL_PART * size
    kink = nonsmooth & ~jump & settled & ~edge & is_steady(shape.rough, shape.size)
    inside = sharpest((left, right))  # at an edge of the domain, the side inside it
    reach = samples.forth.expand_as(shape.size)
    steepest = _steepest(samples)
    low, high, outer = accepted_interval(left, right, smooth, size)
    slight = ~(nonsmooth | edge) & _may_be_slight_kink(smooth, left, right)
    if not sparse and any_set(slight):
        slight &= _has_gap_in_halves(samples, measured, right.value - left.value)
    low = torch.where(slight, torch.minimum(left.value, right.value), low)
    high = torch.where(slight, torch.maximum(left.value, right.value), high)
    kink |= slight
    estimate = Estimate(
        value=torch.where(edge, inside.value, torch.where(kink, (low + high) / 2, smooth.value)),
        bar=torch.where(edge, inside.bar, torch.where(kink & outer, torch.maximum(left.bar, right.bar), smooth.bar)),
    )
    return LadderResult(
        estimate=estimate,
        low=torch.where(kink, low, estimate.value),
        high=torch.where(kink, high, estimate.value),
        kink=kink,
        jump=jump,
        edge=edge,
        steepest=steepest,
        close_kink=shape.rough.any(dim=1) & (at_last_flagged(shape.rough, reach) < COARSE * samples.forth[:, 0]),
        constant=samples.unchanged.all(dim=1),
        hidden_by_cancellation=_cancelled(sampled, samples, steepest),
        high_stair=height > highest_stairs(sampled),
        unsteady=shape.rough.any(dim=1) | (scatter[:, 0] > noise.level),
        scatter=scatter[:, 0],
        rounding_jump=rounding_jump(sampled, samples, measured, estimate),
        undefined=~torch.isfinite(sampled.value).expand_as(edge) & ~torch.isfinite(estimate.value),
    )


def _may_be_slight_kink(smooth: Estimate, left: Estimate, right: Estimate) -> Tensor:
    """Mask of entries that look like a kink that the curvature of the function hides, (C, m).

    At such a kink, of a small weight times the absolute value of an input, central differences converge to the mean of
    the two slopes with a small bar. The slopes `left` and `right` of the point differ by more than their bars.
    """
    gap, middle = (right.value - left.value).abs(), (left.value + right.value) / 2
    slight = gap <= _SLIGHT * torch.maximum(left.value.abs(), right.value.abs())
    return slight & (gap > BAR_FACTOR * (left.bar + right.bar)) & ((smooth.value - middle).abs() <= SMALL_PART * gap)


def _has_gap_in_halves(samples: Samples, level: Tensor, gap: Tensor) -> Tensor:
    """Mask of entries whose two slopes differ by the same `gap` (C, m) from every second step as from the others."""
    has_gap = torch.ones_like(gap, dtype=torch.bool)
    for first in (0, 1):
        noise = level[:, first::2]
        every = torch.ones_like(noise, dtype=torch.bool)
        left, right = sides(of_steps(samples, slice(first, None, 2)), noise, every)
        again = right.value - left.value
        has_gap &= torch.minimum(gap.abs(), again.abs()) > BAR_FACTOR * (left.bar + right.bar)
        has_gap &= (again - gap).abs() <= SMALL_PART * gap.abs()
    return has_gap


def _scatter(samples: Samples) -> Tensor:
    """Return the noise of the forward at each rung, inferred from that rung and all finer ones; (C, K, m).

    With finer steps, the differences of a smooth function converge, and the gap of a jump stays constant. If the
    differences drift apart instead, this is noise, and coarser steps have at least as much of it.
    """
    difference, step = torch.where(samples.vanished, torch.nan, samples.difference), samples.forth
    change = difference.diff(dim=1).abs()
    drifting = change[:, 1:] > change[:, :-1]
    gap_change = (difference * step).diff(dim=1).abs()[:, 1:]
    found = torch.where(drifting, torch.minimum(change[:, 1:] * step[:, 2:], gap_change), 0.0).nan_to_num(0.0, 0.0)
    noise = torch.cat([torch.zeros_like(difference[:, :2]), found], dim=1)
    return suffix_maximum(noise)


def _cancelled(sampled: Sampler, samples: Samples, steepest: Tensor) -> Tensor:
    """Return the derivative that cancellation may hide if only the largest steps change an output; (C, m).

    Terms that cancel leave rounding errors relative to their own size, which the steepest slope nearby shows. If the
    output is exactly zero, the terms may be as large as the inputs, grown by as much as cancellation may leave.
    """
    unchanged = set_to_finest(samples.unchanged)  # at a single rung, rounding may hide a change
    inputs = finite_size(sampled.point).amax() / samples.forth[:, 0]
    growth = (LARGEST_CANCELLATION / sampled.unit).clamp(max=CANCELLATION_UNITS)
    size = torch.where(sampled.value == 0, torch.maximum(steepest, growth * inputs), steepest)
    # A change below the rounding error of the tensor's largest output is hidden too.
    longest = torch.where(unchanged, samples.forth, 0.0).amax(dim=1)
    hidden_slope = sampled.size / longest.clamp(min=TINY)
    still = (unchanged & _is_halving(samples)).any(dim=1)
    return RESULT_UNITS * sampled.unit * torch.where(still, torch.maximum(size, hidden_slope), 0.0)


def _steepest(samples: Samples) -> Tensor:
    """Return the largest slope from the point to any sample on the coarsest rungs; (C, m)."""
    left, right = samples.quotients
    slopes = torch.maximum(left.abs().nan_to_num(0.0, 0.0), right.abs().nan_to_num(0.0, 0.0))
    return torch.where(_is_halving(samples), slopes, 0.0).amax(dim=1)


def _is_halving(samples: Samples) -> Tensor:
    """Mask of the longest steps, each half of the one before; the input's dtype may round them; (C, K, 1 or m)."""
    return samples.forth > 0.75 * _LAST_HALVING * samples.forth[:, :1]
