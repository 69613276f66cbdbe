"""Outputs of a quantised forward: stairs, constant stretches and jumps of rounding.

A stair is a stretch on which the output is constant; the next one is a rounding step higher or lower.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.estimate.samples import (
    Estimate,
    Samples,
    central_differences,
    is_unchanged,
    is_vanished,
    set_to_finest,
)
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import last_set

_NEAR, _FAR = 4, 10  # rungs beyond the stair that are examined
_EVEN = 2.0**-6  # largest relative difference of two slopes that count as equal
_BOTH = 2  # fewest of these rungs at which the output changes on both sides
_NARROW = 2.0**-7  # largest width of a stair, relative to the largest step, if both sides change at near rungs
_LAST = 2.0**-4  # largest width, relative to the largest step, of the last stair before an infinity
_LOW = 2.0**-7  # largest height of a stair, relative to the output, if both sides change at far rungs only (bfloat16)
_FLIGHT = 20.0  # length of staircase examined, in units of the smallest step that changes the output on both sides
_OFF = 1.5  # times the smallest change: largest deviation of a staircase from its slope
_DEVIATES = 5.0  # times its noise: a difference further from the slope deviates from it
_SMOOTHLY = 64.0  # largest growth of a smooth deviation from one step to the next: h² gives 16
_ONWARDS = 16.0  # largest growth at the step after a jump; an exponential grows by more
_UNITS = 8.0  # units of rounding: largest height of such a jump


def constant_tail(sampled: Sampler, samples: Samples) -> Tensor:
    """Mask of the finest steps at which the output is unchanged, without steps that vanished; (C, K, m)."""
    vanished = is_vanished(samples)
    return set_to_finest(is_unchanged(sampled, samples) | vanished) & ~vanished


def stair_height(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the height of the stair that the point lies on, 0 if it lies on none; (C, m)."""
    tail = constant_tail(sampled, samples)
    first = tail.to(torch.int8).argmax(dim=1, keepdim=True)
    up, down = samples.plus - sampled.value, sampled.value - samples.minus
    opposite, infinite = up * down > 0, up.isinf() ^ down.isinf()
    opposite &= (up.isfinite() & down.isfinite()) | infinite
    distance = first - torch.arange(tail.shape[1], device=tail.device).view(1, -1, 1)
    near, far = ((opposite & (distance > 0) & (distance <= reach)).sum(dim=1) >= _BOTH for reach in (_NEAR, _FAR))
    last = far & (opposite & infinite & (distance > 0) & (distance <= _FAR)).any(dim=1)
    changes, beyond = torch.cat([up.abs(), down.abs()], dim=1), (distance > 0) & (distance <= _FAR)
    smallest = torch.where(torch.cat([beyond, beyond], dim=1) & (changes > 0), changes, torch.inf).amin(dim=1)
    width = samples.forth.expand_as(up).gather(1, first).squeeze(1)
    narrow = (near | last) & (width <= torch.where(last, _LAST, _NARROW) * samples.forth[:, 0])
    low = far & (smallest <= _LOW * sampled.value.abs())
    sides, steps = torch.cat([up, down]), torch.cat([samples.forth, samples.back])
    one, other = _ragged(sides, steps, first.repeat(2, 1, 1)).chunk(2)
    return torch.where(tail.any(dim=1) & (narrow | low) & (one | other), smallest, 0.0)


def constant_half_width(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the half-width of the constant stretch around the point, between jumps that are no staircase; (C, m).

    The gradient of a network of ReLUs has such stretches, up to where the next ReLU switches. 0 for all other outputs.
    """
    tail = constant_tail(sampled, samples)
    first = tail.to(torch.int8).argmax(dim=1, keepdim=True)
    width = samples.forth.expand_as(tail).gather(1, first).squeeze(1)
    return torch.where(tail.any(dim=1) & ~_is_flight(sampled, samples), width, 0.0)


def rounding_jump(sampled: Sampler, samples: Samples, level: Tensor, slope: Estimate) -> Tensor:
    """Return the deviation of the differences from a slope (C, m), at its first sudden increase; (C, m), 0 where none.

    `level` (C, K, m) bounds the noise of each difference.
    """
    deviation = (central_differences(samples) - slope.value.unsqueeze(1)).abs()
    deviates = deviation > _DEVIATES * (level + slope.bar.unsqueeze(1))
    known = torch.maximum(deviation, _DEVIATES * level)
    before = torch.cat([known[:, 1:], known[:, -1:]], dim=1)  # at the next finer step
    # Beyond the longest step nothing is known: a deviation that began before it may grow without limit.
    beyond = torch.where(deviates[:, 1:].any(dim=1, keepdim=True), torch.inf, deviation[:, :1])
    after = torch.cat([beyond, deviation[:, :-1]], dim=1)
    sudden = deviates & (deviation > _SMOOTHLY * before) & (after <= _ONWARDS * deviation)
    first = last_set(sudden)  # the finest step with a sudden increase
    size = deviation.gather(1, first).squeeze(1)
    step = samples.forth.expand_as(deviation).gather(1, first).squeeze(1)
    largest = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0).max()
    height = _UNITS * sampled.unit * torch.maximum(sampled.size, largest)
    return torch.where(sudden.any(dim=1) & (size * step <= height), size, 0.0)


def _is_flight(sampled: Sampler, samples: Samples) -> Tensor:
    """Mask of outputs that rise evenly from where they change on both sides, as a staircase does; (C, m).

    An edge of the constant stretch may be much nearer on one side.
    """
    up, down = samples.plus - sampled.value, sampled.value - samples.minus
    rise, steps = (up + down) / 2, samples.forth.expand_as(up)
    both = (up != 0) & (down != 0) & torch.isfinite(rise)
    shortest = torch.where(both, steps, torch.inf).amin(dim=1, keepdim=True)
    near = both & (steps <= _FLIGHT * shortest)
    length = torch.where(near, steps, 0.0).amax(dim=1, keepdim=True)
    height = torch.where(near & (steps == length), rise, 0.0).sum(dim=1, keepdim=True)
    lowest = torch.where(near, torch.minimum(up.abs(), down.abs()), torch.inf).amin(dim=1, keepdim=True)
    even = (rise - height / length * steps).abs() <= _OFF * lowest
    return (even | ~near).all(dim=1) & near.any(dim=1)


def _ragged(changes: Tensor, steps: Tensor, first: Tensor) -> Tensor:
    """Mask of outputs that change unevenly beyond their constant stretch; (C, m).

    Stairs do. The slope beyond a dead zone is even and begins at the end of the stretch, whereas stairs that happen to
    look even begin with a jump. `changes` (C, K, m) is the change of the output, `first` (C, 1, m) the first rung
    within the stretch.
    """
    rungs = [(first - number).clamp(min=0) for number in (1, 2, 3)]
    outputs = [changes.gather(1, place) for place in rungs]
    at_step = [steps.expand_as(changes).gather(1, place) for place in rungs]
    near_slope, far_slope = ((outputs[k + 1] - outputs[k]) / (at_step[k + 1] - at_step[k]) for k in range(2))
    even = (near_slope - far_slope).abs() <= _EVEN * torch.maximum(near_slope.abs(), far_slope.abs())
    rise = near_slope * (at_step[0] - steps.expand_as(changes).gather(1, first))
    jumps = (outputs[0] - rise) * outputs[0].sign() > _EVEN * outputs[0].abs()
    return (~even | jumps | (first < len(rungs))).squeeze(1)
