"""Steps of a quantised forward: stairs, tilted stairs, level stretches, and jumps of rounding."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Estimate, Samples, central, to_the_end, unmoved, void
from gradverify.core.forward.sampler import Sampler

_FEW = 4.0  # units of rounding by which a tilted stair may seem to move
_ROUNDING = 64.0  # units of rounding of the output or the input, as the output feels it, a tilted stair is high at most
_NEAR, _FAR = 4, 10  # rungs beyond the stair that are looked at
_EVEN = 2.0**-6  # slopes beyond a stretch that differ by no more than this part are one slope
_BOTH = 2  # of them, at least, must move on both sides
_NARROW = 2.0**-7  # widest stair that counts, relative to the largest step, if it moves on both sides near by
_SURE = 4  # rungs at which an output stays as it is, at least, on a level stretch
_WIDE = 2.0**-20  # least width of such a stretch, relative to the largest step: float32's stairs are narrower
_LAST = 2.0**-4  # and the last one, beyond which there is an infinity
_FLIGHT = 20.0  # how far up a flight of stairs is looked at, in units of the least step that moves it on both sides
_SHORT = 6.0  # where the largest step is no longer than that, stairs would be wider than any precision's
_STEPS = 3.0  # of these units, at most, it takes to climb as high again as by that step
_OFF = 1.5  # of the lowest move seen, a flight may depart from a slope
_LOW = 2.0**-7  # highest stair that counts, relative to the output, if it does so far off: bfloat16 has such stairs
_HEARD = 5.0  # times its noise, a difference departs from the slope
_SMOOTHLY = 64.0  # by more than this from one step to the next, no smooth function does: by h², it would be 16
_TWICE = 16.0 * _SMOOTHLY  # and by more than this over two, where smooth departures may cancel at the step between
_ONWARDS = 16.0  # by no more than this at the step after a leap: an exponential departs faster and faster
_UNITS = 8.0  # of rounding, which a leap may be high


def stair(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the height of the stair that the point lies on, 0 where it lies on none; (C, m)."""
    return _height(sampled, samples, torch.zeros_like(sampled.value))


def tilted_stair(sampled: Sampler, samples: Samples, slope: Estimate) -> Tensor:
    """Return the height of a stair with this slope (C, m): of a quantity in stairs, times one that moves smoothly."""
    value, bar = (each.nan_to_num(0.0, 0.0, 0.0).unsqueeze(1) for each in (slope.value, slope.bar))
    level = replace(samples, plus=samples.plus - value * samples.forth, minus=samples.minus + value * samples.back)
    height = _height(sampled, level, _FEW * (sampled.unit * sampled.value.abs() + bar * samples.forth))
    inputs = samples.forth[:, 0] * value.squeeze(1).abs().clamp(max=1.0)  # what the output makes of one that is rounded
    rounding = _ROUNDING * sampled.unit * torch.maximum(sampled.value.abs(), inputs)
    return torch.where(height <= rounding, height, 0.0)  # what is higher is none of rounding: a kink on either side


def level_stretch(sampled: Sampler, samples: Samples) -> Tensor:
    """Return how far to either side an output stays as it is, between leaps that are no flight of stairs; (C, m).

    So does the gradient of a network of ReLUs, up to where the next of them switches: 0 of anything else.
    """
    nothing = void(samples)
    tail = to_the_end(unmoved(sampled, samples) | nothing) & ~nothing
    first = tail.to(torch.int8).argmax(dim=1, keepdim=True)
    width = samples.forth.expand_as(tail).gather(1, first).squeeze(1)
    known = (tail.sum(dim=1) >= _SURE) & (width >= _WIDE * samples.forth[:, 0])
    return torch.where(known & ~_is_flight(sampled, samples), width, 0.0)


def rounding_jump(sampled: Sampler, samples: Samples, level: Tensor, slope: Estimate) -> Tensor:
    """Return how far the differences depart from a slope (C, m) where they first do so by a leap, 0 where none; (C, m).

    `level` (C, K, m) is what noise may change in each difference.
    """
    apart = (central(samples) - slope.value.unsqueeze(1)).abs()
    heard = apart > _HEARD * (level + slope.bar.unsqueeze(1))
    before, earlier = _finer(torch.maximum(apart, _HEARD * level), 1), _finer(torch.where(heard, apart, 0.0), 2)
    # After the longest step nothing is known: what was heard before may run away there.
    onwards = torch.where(heard[:, 1:].any(dim=1, keepdim=True), torch.inf, apart[:, :1])
    after = torch.cat([onwards, apart[:, :-1]], dim=1)
    sudden = heard & (apart > _SMOOTHLY * before) & (apart > _TWICE * earlier) & (after <= _ONWARDS * apart)
    order = torch.arange(apart.shape[1], device=apart.device).view(1, -1, 1)
    first = (sudden * (order + 1)).argmax(dim=1, keepdim=True)  # the finest step at which there is one
    size = apart.gather(1, first).squeeze(1)
    step = samples.forth.expand_as(apart).gather(1, first).squeeze(1)
    largest = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0).max()
    height = _UNITS * sampled.unit * torch.maximum(sampled.size, largest)
    return torch.where(sudden.any(dim=1) & (size * step <= height), size, 0.0)


def _is_flight(sampled: Sampler, samples: Samples) -> Tensor:
    """Tell whether outputs climb evenly from where they move on both sides, as stairs of one height do, or may do.

    (C, m). What bends them has the same sign on both sides, and is left out. An edge may be much nearer on one side.
    """
    up, down = samples.plus - sampled.value, sampled.value - samples.minus
    rise, steps = (up + down) / 2, samples.forth.expand_as(up)
    both = (up != 0) & (down != 0) & torch.isfinite(rise)
    begin = torch.where(both, steps, torch.inf).amin(dim=1, keepdim=True)
    near = both & (steps <= _FLIGHT * begin)
    length = torch.where(near, steps, 0.0).amax(dim=1, keepdim=True)
    height = torch.where(near & (steps == length), rise, 0.0).sum(dim=1, keepdim=True)
    lowest = torch.where(near, torch.minimum(up.abs(), down.abs()), torch.inf).amin(dim=1, keepdim=True)
    even = ((rise - height / length * steps).abs() <= _OFF * lowest) | ~near
    climbs = height.abs() >= lowest * (length / begin / _STEPS)
    wide = (steps[:, :1] < _SHORT * begin) & torch.isfinite(rise).all(dim=1, keepdim=True)
    return (even.all(dim=1, keepdim=True) & climbs & ~wide).squeeze(1)


def _height(sampled: Sampler, samples: Samples, unheard: Tensor) -> Tensor:
    """Return the height of the stair, where moves up to `unheard` (m,) or (C, K, m) are none."""
    nothing = void(samples)
    still = ((samples.plus - sampled.value).abs() <= unheard) & ((samples.minus - sampled.value).abs() <= unheard)
    tail = to_the_end(still | nothing) & ~nothing
    first = tail.to(torch.int8).argmax(dim=1, keepdim=True)
    up, down = samples.plus - sampled.value, sampled.value - samples.minus
    opposite, infinite = up * down > 0, up.isinf() ^ down.isinf()
    opposite &= (up.isfinite() & down.isfinite()) | infinite
    distance = first - torch.arange(still.shape[1], device=still.device).view(1, -1, 1)
    near, far = ((opposite & (distance > 0) & (distance <= reach)).sum(dim=1) >= _BOTH for reach in (_NEAR, _FAR))
    last = far & (opposite & infinite & (distance > 0) & (distance <= _FAR)).any(dim=1)
    moves, floor = torch.cat([up.abs(), down.abs()], dim=1), unheard.expand_as(up)
    beyond = (distance > 0) & (distance <= _FAR)
    smallest = torch.where(
        torch.cat([beyond, beyond], dim=1) & (moves > torch.cat([floor, floor], dim=1)), moves, torch.inf
    ).amin(dim=1)
    width = samples.forth.expand_as(up).gather(1, first).squeeze(1)
    narrow = (near | last) & (width <= torch.where(last, _LAST, _NARROW) * samples.forth[:, 0])
    low = far & (smallest <= _LOW * sampled.value.abs())
    sides, steps = torch.cat([up, down]), torch.cat([samples.forth, samples.back])
    one, other = _ragged(sides, steps, first.repeat(2, 1, 1)).chunk(2)
    return torch.where(tail.any(dim=1) & (narrow | low) & (one | other), smallest, 0.0)


def _ragged(moves: Tensor, steps: Tensor, first: Tensor) -> Tensor:
    """Tell whether an output moves unevenly beyond its flat stretch: stairs do, the slope beyond a dead zone does not.

    That slope also begins where the stretch ends, where stairs that happen to look even begin with a leap. `moves`
    (C, K, m) is by how much it moves, `first` (C, 1, m) the first rung within the stretch.
    """
    near = [(first - number).clamp(min=0) for number in (1, 2, 3)]
    there = [moves.gather(1, place) for place in near]
    at = [steps.expand_as(moves).gather(1, place) for place in near]
    one, other = ((there[k + 1] - there[k]) / (at[k + 1] - at[k]) for k in range(2))
    even = (one - other).abs() <= _EVEN * torch.maximum(one.abs(), other.abs())
    reach = one * (at[0] - steps.expand_as(moves).gather(1, first))
    leaps = (there[0] - reach) * there[0].sign() > _EVEN * there[0].abs()
    return (~even | leaps | (first < len(near))).squeeze(1)


def _finer(values: Tensor, rungs: int) -> Tensor:
    """Return the values so many rungs further down, or at the last one where the ladder ends before; (C, K, m)."""
    last = values[:, -1:].expand(-1, min(rungs, values.shape[1]), -1)
    return torch.cat([values[:, rungs:], last], dim=1)
