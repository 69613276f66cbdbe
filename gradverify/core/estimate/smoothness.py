"""Classification of a function at every step of a ladder: smooth, bent or torn (discontinuous).

Let S(h) = |f(x+h) - 2 f(x) + f(x-h)| / h. A smooth function has S ~ h, |x|^1.5 has S ~ h^0.5, a kink has S ~ 1 and a
jump has S ~ 1/h. The one-sided quotients of a jump grow like 1/h too, even if S vanishes by symmetry.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Samples, central_differences, finest, one_sided_quotients
from gradverify.core.estimate.tableau import MEASURABLE
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import TINY, last_set, suffix_maximum

_BENT = 0.25  # power of h: if S falls more slowly, the function is not smooth
_TORN = -0.5  # power of h: if S or a one-sided quotient grows faster, the function is not continuous
_CALM = 0.7  # power of h: if S falls at least as fast, the function is smooth
_LASTING = 4  # ladders with fewer rungs keep isolated flags
BEND_ROUNDING = 64.0  # units of rounding of the largest output: smaller bends may be rounding
_LARGER = 2.0**14  # times the input's contribution: how large an intermediate number may be
_STEADY = 5  # rungs over which the bend of a kink or the height of a jump is constant
_SAME = 2.0  # largest ratio of sizes that count as constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothness:
    """Classification of the function at every step, all (C, K, m)."""

    size: Tensor  # difference between the one-sided quotients; where torn, the largest of it and them
    rough: Tensor  # bool: not smooth at this step
    torn: Tensor  # bool: not continuous
    smooth: Tensor  # bool: bends, measurably, as a smooth function does


def bends_in_first_look(sampled: Sampler, samples: Samples, noise: Tensor) -> Tensor:
    """Mask of entries of the cheap pass where the function bends as no smooth function does; (C, m).

    This applies the criteria of `shape_of` to the last two steps, which differ by a factor of two. `noise` (C, m)
    bounds the noise of the finest difference. The result is arbitrary where a difference is not finite.
    """
    rounding = (BEND_ROUNDING / MEASURABLE * sampled.unit * sampled.size) / samples.forth[:, -1]
    floor = torch.maximum(noise, rounding).mul_(MEASURABLE)
    left, right = one_sided_quotients(sampled, finest(samples, 2))
    bend = (right - left).abs_()
    slope = torch.maximum(left.abs_(), right.abs_(), out=left)
    bent = bend[:, -1] > torch.maximum(floor, bend[:, -2].mul_(0.5**_BENT))
    return bent.logical_or_(slope[:, -1] > torch.maximum(floor, slope[:, -2].mul_(0.5**_TORN)))


def classify_steps(sampled: Sampler, samples: Samples, level: Tensor, own: Tensor) -> Smoothness:
    """Classify the function at every step; `level` (C, K, m) is the noise of a difference.

    `own` (C, 1 or m) is the magnitude of the input.
    """
    left, right = one_sided_quotients(sampled, samples)
    bend, slope = (right - left).abs(), torch.maximum(left.abs(), right.abs())
    step = samples.forth.log()
    bends, grows = _power(bend, step), _power(slope, step)
    rounding = BEND_ROUNDING * sampled.unit * _own_size(sampled, samples)
    floor = torch.maximum(MEASURABLE * level, rounding / samples.forth)
    measurable, slope_measurable = bend > floor, slope > floor
    measurable &= (bends >= _TORN) | (bend > _inside(sampled, samples, own) / samples.forth)
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
    before = (order < last) & (order >= last - _STEADY)
    largest = torch.where(before, size, 0.0).amax(dim=1)
    smallest = torch.where(before, size, torch.inf).amin(dim=1)
    return (largest <= _SAME * smallest) & (before.sum(dim=1) == _STEADY)


def largest_changes(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the larger of the changes of the output to either side, at each step; (C, K, m)."""
    return torch.maximum((samples.plus - sampled.value).abs(), (samples.minus - sampled.value).abs())


def _own_size(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the largest magnitude of each output at the point and on both sides of it, (C, K, m)."""
    return torch.fmax(torch.fmax(samples.plus.abs(), samples.minus.abs()), sampled.value.abs())


def _inside(sampled: Sampler, samples: Samples, own: Tensor) -> Tensor:
    """Return how much rounding of an intermediate number may change a difference of outputs, (C, K, m).

    The number may be larger than the contribution of the input to it. Its rounding error at the point is the same for
    all steps, and so looks like a jump.
    """
    return _LARGER * sampled.unit * own.unsqueeze(1) * central_differences(samples).abs()


def _lasting(flags: Tensor) -> Tensor:
    """Drop isolated flags: a flag at a single rung is an accident of the noise."""
    if flags.shape[1] < _LASTING:
        return flags
    none = torch.zeros_like(flags[:, :1])
    return flags & (torch.cat([none, flags[:, :-1]], dim=1) | torch.cat([flags[:, 1:], none], dim=1))


def _power(values: Tensor, step: Tensor) -> Tensor:
    """Return p in values ~ h^p between each step and the coarser one before it; infinite for the first."""
    logs = values.clamp(min=TINY).log()
    power = logs.diff(dim=1) / step.diff(dim=1)
    return torch.cat([torch.full_like(logs[:, :1], torch.inf), power], dim=1)
