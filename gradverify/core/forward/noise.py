"""Noise of the forward's outputs: measured, never assumed.

The estimate is ECnoise: high-order differences of a smooth function along a line vanish faster than those of its
rounding noise, so the remainder is the noise (Moré & Wild, SIAM J. Sci. Comput. 33(3), 2011, section 3). Unlike there,
the samples are not equispaced and the differences are divided: with equispaced samples, rounding that grows by the same
amount at every step, as that of 1 + x may over eight steps, would vanish like a smooth function. The two sides of the
point are sampled separately and without the point, because a kink or a jump there would look like noise. A side with
far more noise than the other is taken to contain one.

Sampling at smaller spacings distinguishes noise from variation on a length below the spacing: noise persists, smooth
variation vanishes. The spacing is reduced as long as the estimate falls with it. A single fall is not enough: samples
that all lie on one stair, a stretch over which the rounded output is constant, show no noise either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache

import torch
from torch import Tensor

from gradverify.core.forward.batching import on_line
from gradverify.core.forward.sampler import Sampler, outputs_near
from gradverify.core.model.generators import random_magnitudes, random_magnitudes_from
from gradverify.core.model.limits import portions
from gradverify.core.model.magnitudes import TINY, LengthScales, all_set, any_set, finite_size, weighted_sums
from gradverify.core.tuning import ALIKE, CANCELLATION_UNITS, CLEARLY_ABOVE, CLEARLY_LESS, FEW, NEARBY_POINTS

# Distances of the samples; no two gaps are equal.
SAMPLE_DISTANCES = tuple(k + 0.8 * (k * 0.6180339887498949 % 1) for k in range(1, NEARBY_POINTS + 1))
_ORDERS = (3, 4, 5)  # orders of the divided differences
_SPACING = 1.3 * 2.0**-20  # times the length scale: many float32 ulps, but too short for most functions to vary visibly
_REDUCTION = 4.0  # factor by which the spacing then shrinks
_MAX_REDUCTIONS = 11  # reductions of the spacing, at most
_LARGE_FALL = 30.0  # an estimate that falls by more was not noise: order 3 of a smooth function falls by 64
_FALL_TO_STAIR = 1e5  # an estimate that falls by more reached one stair: order 5 of a smooth function falls by 1024
_RELIABLE = 1e-5  # times the output: sampling continues while the estimate is larger, above the noise of float32
SAFETY = 8.0  # times the standard deviation, which is the smallest of three estimates: gives a bound
_SIDES_RATIO = 1e3  # a side with this many times the noise of the other contains a kink or a jump


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Noise of each output, in the output's units; fields (m,), float64 unless noted."""

    level: Tensor  # bound on the error of the output
    upper_level: Tensor  # upper bound: above `level` where noise and a kink cannot be distinguished
    persistent: Tensor  # bool: True where `upper_level` was measured at several spacings, as noise would be
    rounding: Tensor  # the part explained by rounding the output to its own dtype
    relative_level: Tensor  # noise per unit of the output's size: samples that are larger have more noise

    def of(self, outputs: Tensor | slice) -> Noise:
        """Return the noise of the selected outputs."""
        return Noise(**{field.name: getattr(self, field.name)[outputs] for field in fields(self)})


def measure(sampled: Sampler, lengths: LengthScales, seed: int) -> Noise:
    """Measure the noise of every output along one random direction; costs 8 forwards, more if it is large."""
    direction = first_direction(sampled, lengths, seed)
    return noise_from_samples(sampled, direction, on_line(sampled, direction, SAMPLE_DISTANCES))


def first_direction(sampled: Sampler, lengths: LengthScales, seed: int) -> Tensor:
    """Return the direction of the first samples, which are taken at `SAMPLE_DISTANCES`; (n,).

    It is longer if the inputs' own dtypes cannot resolve the usual spacing.
    """
    return direction_of(lengths, seed) * -max(_SPACING, 8 * sampled.problem.eps)


def noise_from_samples(sampled: Sampler, direction: Tensor, samples: Tensor) -> Noise:
    """Measure the noise of every output; `samples` (8, m) are the outputs at `SAMPLE_DISTANCES` along `direction`."""
    size = finite_size(sampled.value)
    rounding = rounding_of(sampled, samples.abs().amax(dim=0))
    threshold = ALIKE * CANCELLATION_UNITS * torch.fmax(rounding, sampled.size * sampled.unit)
    noise_of_side = noise_in(samples)
    del samples  # frees the largest tensor held here
    finite = torch.isfinite(sampled.value)
    level = previous = before_previous = _estimate(sampled, direction, noise_of_side, rounding, threshold, finite)
    is_open = level > threshold
    fall_score = torch.zeros_like(level)  # score of consecutive falls
    after_drop, persistent = torch.full_like(level, torch.inf), torch.zeros_like(is_open)
    for reduction in range(_MAX_REDUCTIONS):
        if not any_set(is_open):
            break
        direction = direction / _REDUCTION
        estimate = _estimate(sampled, direction, noise_along(sampled, direction), rounding, threshold, finite)
        unknown = previous == torch.inf
        level, previous = torch.where(unknown, estimate, level), torch.where(unknown, estimate, previous)
        on_stair, fell_before = previous > estimate * _FALL_TO_STAIR, fall_score > 0
        fall_score = torch.where(estimate < CLEARLY_LESS * previous, fall_score + 1.0, 0.0)
        fall_score += 0.5 * (estimate * _LARGE_FALL < previous)
        # Two large falls in a row, or three small ones: a single one may be samples on one stair.
        follows = ~on_stair & (fall_score >= FEW)
        level = torch.where(is_open & follows & (estimate * _LARGE_FALL < level), estimate, level)
        # Samples on one stair of rounding noise, or all before the first kink.
        dropped = is_open & (on_stair | ((estimate <= threshold) & (estimate * _LARGE_FALL < previous) & ~follows))
        after_drop = torch.where(dropped, estimate, after_drop)
        persistent |= dropped & ~fell_before & (reduction > 0)
        falling = ALIKE * estimate < CLEARLY_LESS * torch.fmax(previous, before_previous)
        uncertain = falling | (estimate > _RELIABLE * size) | (reduction < FEW)
        is_open &= uncertain & (estimate > threshold) & ~on_stair
        previous, before_previous = estimate, previous
    upper = level = pooled(sampled, torch.where(level < torch.inf, level, rounding))
    if any_set(after_drop < torch.inf):
        level = torch.fmin(upper, pooled(sampled, after_drop))
    return Noise(level=level, upper_level=upper, persistent=persistent, rounding=rounding, relative_level=sampled.unit)


def at_least(noise: Noise, size: Tensor) -> Noise:
    """Return the noise with its level, its upper bound and its rounding raised to at least `size` (m,)."""
    level, upper, rounding = (torch.fmax(each, size) for each in (noise.level, noise.upper_level, noise.rounding))
    return replace(noise, level=level, upper_level=upper, rounding=rounding)


def rounding_only(noise: Noise, sampled: Sampler) -> Noise:
    """Return the noise reduced to its rounding part, the rest being variation of the function."""
    share = torch.minimum(noise.relative_level, torch.maximum(sampled.unit, share_of(sampled, noise.rounding)))
    return replace(noise, level=noise.rounding, relative_level=share)


def share_of(sampled: Sampler, level: Tensor) -> Tensor:
    """Return the median ratio of a noise level (m,) to the outputs' sizes; ()."""
    size = sampled.value.abs()
    return (level / size).masked_fill(size == 0, torch.nan).nanmedian().nan_to_num(0.0)


def rounding_of(sampled: Sampler, near: Tensor) -> Tensor:
    """Return the noise explained by rounding outputs to their own dtype, and by evaluating many in one call; (m,).

    An output that is exactly zero may be a sum that cancels. Its terms are taken to be as large as the output is `near`
    the point (m,), if that is not 0, and no larger than its tensor's largest entry.
    """
    magnitude = torch.where((near > 0) & (near < sampled.size), near, sampled.size)
    size = torch.where(sampled.own_size > 0, sampled.own_size, magnitude)
    return size * (sampled.unit * max(1.0, sampled.vectorisation.largest_difference)) + TINY


def direction_of(lengths: LengthScales, seed: int) -> Tensor:
    """Return a random direction with entries of about each input's own length; (n,)."""
    return random_magnitudes_from(lengths.nonzero, seed)


def largest_change(sampled: Sampler, length: Tensor) -> Tensor:
    """Return the largest change of each output if all inputs move at random by about `length` (n,); (m,)."""
    generator = torch.Generator().manual_seed(0)
    moved = [outputs_near(sampled, random_magnitudes(length, generator)) for _ in range(NEARBY_POINTS)]
    return finite_size(torch.stack(moved) - sampled.value).amax(dim=0)


def _estimate(
    sampled: Sampler, direction: Tensor, one: Tensor, rounding: Tensor, threshold: Tensor, finite: Tensor
) -> Tensor:
    """Return a bound on the noise from that of `one` side of the point, and of the other if the first is noisy; (m,).

    It is infinite where neither side is in the domain although the point is (`finite`).
    """
    if _is_clean(one, threshold):
        return torch.fmax(one.mul_(SAFETY), rounding)
    other = noise_along(sampled, -direction)
    lower, higher = torch.fmax(torch.fmin(one, other), rounding), torch.fmax(one, other)
    noise = torch.where(higher <= _SIDES_RATIO * lower, higher, lower).mul_(SAFETY)
    return torch.fmax(noise, rounding).masked_fill_(finite & higher.isnan(), torch.inf)


def _is_clean(one: Tensor, threshold: Tensor) -> bool:
    """Return True if one side of the point has so little noise that the other need not be sampled."""
    return all_set(one <= threshold * (CLEARLY_ABOVE / (ALIKE * CANCELLATION_UNITS) / SAFETY))


def pooled(sampled: Sampler, level: Tensor) -> Tensor:
    """Return noise levels raised to at least the median of their output tensor, relative to size; (m,).

    Eight samples sometimes show much less noise than there is, but seldom for most outputs. If the sampler is
    restricted to some outputs, their levels are returned unchanged.
    """
    if sampled.selected is not None:
        return level
    size = sampled.value.abs()
    size = torch.where((size > 0) & (size < torch.inf), size, torch.nan)  # excluded from the median
    share = level / size
    for block in sampled.outputs:
        block_share = share[block.coordinates]
        share[block.coordinates] = block_share.nanmedian() if block_share.numel() else block_share
    return torch.fmax(level, share * size)


def noise_in(samples: Tensor) -> Tensor:
    """Return the noise of each output, from samples (8, m) at `SAMPLE_DISTANCES` along a line; (m,)."""
    found = torch.empty_like(samples[0])
    for part in portions(found):
        found[part] = _from_differences(samples[:, part])
    return found


def noise_along(sampled: Sampler, direction: Tensor) -> Tensor:
    """Return the noise estimate of each output from samples along `direction` at `SAMPLE_DISTANCES`; (m,)."""
    return noise_in(on_line(sampled, direction, SAMPLE_DISTANCES))


def _from_differences(samples: Tensor) -> Tensor:
    """Return the smallest noise estimate of the difference orders, from samples (points, m); (m,)."""
    differences = samples[1:] - samples[0]
    size = differences.abs().amax(dim=0).clamp_(min=TINY)  # differences are scaled, since their squares may underflow
    squares = weighted_sums(_weights(), differences.div_(size)).square_()
    return weighted_sums(_means(), squares).amin(dim=0).sqrt_().mul_(size)


@cache
def _weights() -> Tensor:
    """Return the weights of the divided differences of neighbouring samples, all orders; (differences, points - 1).

    They are scaled so that independent noise of variance 1 gives variance 1. The weight of the first sample is left
    out: the other samples are taken relative to it, and the weights of each difference add up to zero.
    """
    return torch.cat([_weights_of(order) for order in _ORDERS])[:, 1:].contiguous()


@cache
def _means() -> Tensor:
    """Return the weights of the mean over all differences of each order; (orders, differences)."""
    order = torch.tensor([order for order in _ORDERS for _ in range(NEARBY_POINTS - order)], device="cpu")
    of_order = (order == torch.tensor(_ORDERS, device="cpu").unsqueeze(1)).to(torch.float64)
    return of_order / of_order.sum(dim=1, keepdim=True)


def _weights_of(order: int) -> Tensor:
    """Return the weights of the divided differences of one order; (differences, points)."""
    rows = torch.zeros(NEARBY_POINTS - order, NEARBY_POINTS, dtype=torch.float64, device="cpu")
    for start, row in enumerate(rows):
        nodes = SAMPLE_DISTANCES[start : start + order + 1]
        for number, node in enumerate(nodes):
            row[start + number] = 1 / math.prod(node - other for other in nodes if other != node)
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt()
