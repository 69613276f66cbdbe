"""Classification of a function at every step of a ladder: smooth, bent, torn (discontinuous) or quantised.

Let S(h) = |f(x+h) - 2 f(x) + f(x-h)| / h. A smooth function has S ~ h, |x|^1.5 has S ~ h^0.5, a kink has S ~ 1 and a
jump has S ~ 1/h. The one-sided quotients of a jump grow like 1/h too, even if S vanishes by symmetry.

A quantised output is constant on each stair; the next stair is a rounding step higher or lower.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Estimate, Samples
from gradverify.core.estimate.tableau import MEASURABLE
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import TINY, finite_size, last_set, suffix_maximum
from gradverify.core.tuning import (
    ALIKE,
    CANCELLATION_UNITS,
    CLEARLY_ABOVE,
    CONVINCING,
    FEW,
    LOST_UNITS,
    SEVERAL,
    SMALL_PART,
)

_BENT = 0.25  # power of h: if S falls more slowly, the function is not smooth
_TORN = -0.5  # power of h: if S or a one-sided quotient grows faster, the function is not continuous
_CALM = 0.7  # power of h: if S falls at least as fast, the function is smooth
_FAR = 10  # rungs beyond the stair that are examined
_EVEN = 2.0**-6  # largest relative difference of two slopes that count as equal
LOW = 2.0**-7  # largest width of a stair, relative to the largest step, if both sides change at near rungs;
# and largest height, relative to the output, if they do at far rungs only (bfloat16)
_FLIGHT = 20.0  # length of staircase examined, in units of the smallest step that changes the output on both sides
_ONWARDS = 16.0  # largest growth at the step after a jump; an exponential grows by more


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothness:
    """Classification of the function at every step, all (C, K, m)."""

    size: Tensor  # difference between the one-sided quotients; where torn, the largest of it and them
    rough: Tensor  # bool: not smooth at this step
    torn: Tensor  # bool: not continuous
    smooth: Tensor  # bool: bends, measurably, as a smooth function does


def bends_in_first_look(sampled: Sampler, samples: Samples, noise: Tensor) -> Tensor:
    """Mask of entries of the first look where the function bends as no smooth function does; (C, m).

    This applies the criteria of `classify_steps` to the last two steps, which differ by a factor of two. `noise` (C, m)
    bounds the noise of the finest difference. The result is arbitrary where a difference is not finite.
    """
    floor = torch.maximum(MEASURABLE * noise, CLEARLY_ABOVE * sampled.unit * sampled.size / samples.forth[:, -1])
    left, right = samples.quotients
    bend, slope = (right - left).abs(), torch.maximum(left.abs(), right.abs())
    bent = bend[:, -1] > torch.maximum(floor, 0.5**_BENT * bend[:, -2])
    return bent | (slope[:, -1] > torch.maximum(floor, 0.5**_TORN * slope[:, -2]))


def classify_steps(sampled: Sampler, samples: Samples, level: Tensor, own: Tensor) -> Smoothness:
    """Classify the function at every step; `level` (C, K, m) is the noise of a difference.

    `own` (C, 1 or m) is the magnitude of the input.
    """
    left, right = samples.quotients
    bend, slope = (right - left).abs(), torch.maximum(left.abs(), right.abs())
    step = samples.forth.log()
    bends, grows = _power(bend, step), _power(slope, step)
    largest = torch.fmax(torch.fmax(samples.plus.abs(), samples.minus.abs()), sampled.value.abs())
    floor = torch.maximum(MEASURABLE * level, CLEARLY_ABOVE * sampled.unit * largest / samples.forth)
    measurable, slope_measurable = bend > floor, slope > floor
    measurable &= (bends >= _TORN) | (bend > _intermediate_rounding(sampled, samples, own) / samples.forth)
    torn = (measurable & (bends < _TORN)) | (slope_measurable & (grows < _TORN))
    torn = _lasting(torn)
    rough = _lasting(measurable & (bends < _BENT)) | torn
    size = torch.where(torn, torch.maximum(bend, slope), bend)
    return Smoothness(size=size, rough=rough, torn=torn, smooth=measurable & (bends > _CALM))


def flagged_or_next(flags: Tensor) -> Tensor:
    """True where this rung or the coarser one before it is flagged.

    At the last rough rung itself, little of a jump may be left.
    """
    return flags | torch.cat([torch.zeros_like(flags[:, :1]), flags[:, :-1]], dim=1)


def up_to_last_flagged(flags: Tensor) -> Tensor:
    """True where this rung or any finer one is flagged."""
    return suffix_maximum(flags.to(torch.int8)).bool()


def at_last_flagged(flags: Tensor, values: Tensor) -> Tensor:
    """Return `values` at the finest flagged rung, 0 where none is flagged; (C, K, m) -> (C, m)."""
    return torch.where(flags.any(dim=1), values.gather(1, last_set(flags)).squeeze(1), 0.0)


def is_steady(rough: Tensor, size: Tensor) -> Tensor:
    """True where `size` is constant, up to a factor, over some rungs before the last rough one; (C, m).

    The bend of a kink and the height of a jump are constant; a function that varies too quickly for the steps has
    neither. The last rough rung itself is left out, because the kink or jump may lie close to the end of that step.
    """
    order, last = torch.arange(size.shape[1], device=size.device).view(1, -1, 1), last_set(rough)
    before = (order < last) & (order >= last - CONVINCING)
    largest = torch.where(before, size, 0.0).amax(dim=1)
    smallest = torch.where(before, size, torch.inf).amin(dim=1)
    return (largest <= ALIKE * smallest) & (before.sum(dim=1) == CONVINCING)


def stair_height(samples: Samples) -> Tensor:
    """Return the height of the stair that the point lies on, 0 if it lies on none; (C, m)."""
    tail = samples.constant_tail
    first = tail.to(torch.int8).argmax(dim=1, keepdim=True)
    down, up = samples.changes
    opposite, infinite = up * down > 0, up.isinf() ^ down.isinf()
    distance = first - torch.arange(tail.shape[1], device=tail.device).view(1, -1, 1)
    beyond = (distance > 0) & (distance <= _FAR)
    near, far = ((opposite & rungs).sum(dim=1) >= SEVERAL for rungs in (beyond & (distance <= FEW), beyond))
    last = far & (opposite & infinite & beyond).any(dim=1)
    changes = torch.cat([up.abs(), down.abs()], dim=1)
    smallest = torch.where(torch.cat([beyond, beyond], dim=1) & (changes > 0), changes, torch.inf).amin(dim=1)
    width = samples.forth.expand_as(up).gather(1, first).squeeze(1)
    narrow = (near | last) & (width <= torch.where(last, SMALL_PART, LOW) * samples.forth[:, 0])
    low = far & (smallest <= LOW * samples.value.abs())
    sides, steps = torch.cat([up, down]), torch.cat([samples.forth, samples.back])
    one, other = _ragged(sides, steps, first.repeat(2, 1, 1)).chunk(2)
    return torch.where(tail.any(dim=1) & (narrow | low) & (one | other), smallest, 0.0)


def constant_half_width(samples: Samples) -> Tensor:
    """Return the half-width of the constant stretch around the point, between jumps that are no staircase; (C, m).

    The gradient of a network of ReLUs has such stretches, up to where the next ReLU switches. 0 for all other outputs.
    """
    tail = samples.constant_tail
    first = tail.to(torch.int8).argmax(dim=1, keepdim=True)
    width = samples.forth.expand_as(tail).gather(1, first).squeeze(1)
    return torch.where(tail.any(dim=1) & ~_is_flight(samples), width, 0.0)


def rounding_jump(sampled: Sampler, samples: Samples, level: Tensor, slope: Estimate) -> Tensor:
    """Return the deviation of the differences from a slope (C, m), at its first sudden increase; (C, m), 0 where none.

    `level` (C, K, m) bounds the noise of each difference.
    """
    deviation = (samples.difference - slope.value.unsqueeze(1)).abs()
    deviates = deviation > MEASURABLE * (level + slope.bar.unsqueeze(1))
    known = torch.maximum(deviation, MEASURABLE * level)
    before = torch.cat([known[:, 1:], known[:, -1:]], dim=1)  # at the next finer step
    # Beyond the longest step nothing is known: a deviation that began before it may grow without limit.
    beyond = torch.where(deviates[:, 1:].any(dim=1, keepdim=True), torch.inf, deviation[:, :1])
    after = torch.cat([beyond, deviation[:, :-1]], dim=1)
    sudden = deviates & (deviation > CLEARLY_ABOVE * before) & (after <= _ONWARDS * deviation)
    first = last_set(sudden)  # the finest step with a sudden increase
    size = deviation.gather(1, first).squeeze(1)
    step = samples.forth.expand_as(deviation).gather(1, first).squeeze(1)
    largest = finite_size(sampled.point).max()
    height = LOST_UNITS * sampled.unit * torch.maximum(sampled.size, largest)
    return torch.where(sudden.any(dim=1) & (size * step <= height), size, 0.0)


def _intermediate_rounding(sampled: Sampler, samples: Samples, own: Tensor) -> Tensor:
    """Return how much rounding of an intermediate number may change a difference of outputs, (C, K, m).

    The number may be larger than the contribution of the input to it. Its rounding error at the point is the same for
    all steps, and so looks like a jump.
    """
    return CANCELLATION_UNITS**2 * sampled.unit * own.unsqueeze(1) * samples.difference.abs()


def _lasting(flags: Tensor) -> Tensor:
    """Drop isolated flags: a flag at a single rung is an accident of the noise."""
    none = torch.zeros_like(flags[:, :1])
    return flags & (torch.cat([none, flags[:, :-1]], dim=1) | torch.cat([flags[:, 1:], none], dim=1))


def _power(values: Tensor, step: Tensor) -> Tensor:
    """Return p in values ~ h^p between each step and the coarser one before it; infinite for the first."""
    logs = values.clamp(min=TINY).log()
    power = logs.diff(dim=1) / step.diff(dim=1)
    return torch.cat([torch.full_like(logs[:, :1], torch.inf), power], dim=1)


def _is_flight(samples: Samples) -> Tensor:
    """Mask of outputs that rise evenly from where they change on both sides, as a staircase does; (C, m).

    An edge of the constant stretch may be much nearer on one side.
    """
    down, up = samples.changes
    rise, steps = (up + down) / 2, samples.forth.expand_as(up)
    both = (up != 0) & (down != 0) & torch.isfinite(rise)
    shortest = torch.where(both, steps, torch.inf).amin(dim=1, keepdim=True)
    near = both & (steps <= _FLIGHT * shortest)
    length = torch.where(near, steps, 0.0).amax(dim=1, keepdim=True)
    height = torch.where(near & (steps == length), rise, 0.0).sum(dim=1, keepdim=True)
    lowest = torch.where(near, torch.minimum(up.abs(), down.abs()), torch.inf).amin(dim=1, keepdim=True)
    even = (rise - height / length * steps).abs() <= ALIKE * lowest
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
