"""How a function looks at every step of a ladder: smooth, bent or torn.

With S(h) = |f(x+h) - 2 f(x) + f(x-h)| / h, a smooth function has S ~ h, |x|^1.5 has S ~ h^0.5, a kink has S ~ 1 and a
jump has S ~ 1/h; the one-sided quotients of a jump grow like 1/h too, also where S vanishes by symmetry.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Samples, central, finest, one_sided
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import suffix_maximum

_BENT = 0.25  # S falling more slowly than this power of h is no smooth function
_TORN = -0.5  # S, or a one-sided quotient, growing faster than this power: no continuous one
_CALM = 0.7  # S falling at least like this power of h is that of a smooth function
_AUDIBLE = 5.0  # how far above the noise a difference must stand to be heard
_LASTING = 4  # with fewer steps than this, one flag is all there can be
_ROUNDING = 64.0  # units of rounding of the largest output: what bends by less may do so by rounding
_LARGER = 2.0**14  # times what the input contributes
_STEADY = 5  # rungs over which a kink keeps its bend, and a jump its height
_SAME = 2.0  # up to this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothness:
    """How the function looks at every step, all (C, K, m)."""

    size: Tensor  # how far the one-sided quotients are apart, or how large they grow
    rough: Tensor  # bool: not smooth at this step
    torn: Tensor  # bool: not continuous
    calm: Tensor  # bool: bends as a smooth function does, and audibly


def suspicious(sampled: Sampler, samples: Samples, noise: Tensor) -> Tensor:
    """Tell for each entry of the cheap pass whether the function bends there as no smooth one does; (C, m).

    The same question as `examine` asks, of the last two steps only, which are a factor of two apart. `noise` (C, m) is
    what noise may change in the finest difference. Says nothing where a difference is not finite.
    """
    rounding = (_ROUNDING / _AUDIBLE * sampled.unit * sampled.size) / samples.forth[:, -1]
    floor = torch.maximum(noise, rounding).mul_(_AUDIBLE)
    left, right = one_sided(sampled, finest(samples, 2))
    bend = (right - left).abs_()
    slope = torch.maximum(left.abs_(), right.abs_(), out=left)
    bent = bend[:, -1] > torch.maximum(floor, bend[:, -2].mul_(0.5**_BENT))
    return bent.logical_or_(slope[:, -1] > torch.maximum(floor, slope[:, -2].mul_(0.5**_TORN)))


def shape_of(sampled: Sampler, samples: Samples, level: Tensor, own: Tensor) -> Smoothness:
    """Return how the function looks at every step, where `level` (C, K, m) is the noise of a difference.

    `own` (C, 1 or m) is the magnitude of the input that an entry is by.
    """
    left, right = one_sided(sampled, samples)
    bend, slope = (right - left).abs(), torch.maximum(left.abs(), right.abs())
    step = samples.forth.log()
    bends, grows = _power(bend, step), _power(slope, step)
    rounding = _ROUNDING * sampled.unit * _own_size(sampled, samples)
    floor = torch.maximum(_AUDIBLE * level, rounding / samples.forth)
    heard, slope_heard = bend > floor, slope > floor
    heard &= (bends >= _TORN) | (bend > _inside(sampled, samples, own) / samples.forth)
    torn = (heard & (bends < _TORN)) | (slope_heard & (grows < _TORN))
    torn = _lasting(torn)
    rough = _lasting(heard & (bends < _BENT)) | torn
    size = torch.where(torn, torch.maximum(bend, slope), bend)
    return Smoothness(size=size, rough=rough, torn=torn, calm=heard & (bends > _CALM))


def or_before(flags: Tensor) -> Tensor:
    """Mark flagged rungs and those after one: at the last rough rung itself, little of a jump may be left."""
    return flags | torch.cat([torch.zeros_like(flags[:, :1]), flags[:, :-1]], dim=1)


def up_to_the_last(flags: Tensor) -> Tensor:
    """Mark every rung that has a flagged rung at or after it."""
    return suffix_maximum(flags.to(torch.int8)).bool()


def at_last(flags: Tensor, values: Tensor) -> Tensor:
    """Return `values` at the finest flagged rung, 0 where none is flagged; (C, K, m) -> (C, m)."""
    order = torch.arange(1, flags.shape[1] + 1, device=flags.device).view(1, -1, 1)
    last = (flags * order).argmax(dim=1, keepdim=True)
    return torch.where(flags.any(dim=1), values.gather(1, last).squeeze(1), 0.0)


def is_steady(rough: Tensor, size: Tensor) -> Tensor:
    """Tell whether a size stays the same over some rungs before the last rough one; (C, m).

    The bend of a kink does, and the height of a jump, where a function that varies too quickly for the steps keeps
    neither. At the last rough rung itself the kink or jump may lie close to the end of the step.
    """
    order = torch.arange(size.shape[1], device=size.device).view(1, -1, 1)
    last = (rough * (order + 1)).argmax(dim=1, keepdim=True)
    before = (order < last) & (order >= last - _STEADY)
    largest = torch.where(before, size, 0.0).amax(dim=1)
    smallest = torch.where(before, size, torch.inf).amin(dim=1)
    return (largest <= _SAME * smallest) & (before.sum(dim=1) == _STEADY)


def largest_moves(sampled: Sampler, samples: Samples) -> Tensor:
    """Return how far the output moves at each step, to the side where it moves further; (C, K, m)."""
    return torch.maximum((samples.plus - sampled.value).abs(), (samples.minus - sampled.value).abs())


def _own_size(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the largest magnitude of each output around the point, (C, K, m)."""
    return torch.fmax(torch.fmax(samples.plus.abs(), samples.minus.abs()), sampled.value.abs())


def _inside(sampled: Sampler, samples: Samples, own: Tensor) -> Tensor:
    """Return what rounding of a number inside, larger than what the input contributes to it, may leave; (C, K, m).

    At the point itself it is the same beside all steps, and so looks like a jump.
    """
    return _LARGER * sampled.unit * own.unsqueeze(1) * central(samples).abs()


def _lasting(flags: Tensor) -> Tensor:
    """Keep a flag only beside another one: what lasts for a single step is an accident of the noise."""
    if flags.shape[1] < _LASTING:
        return flags
    none = torch.zeros_like(flags[:, :1])
    return flags & (torch.cat([none, flags[:, :-1]], dim=1) | torch.cat([flags[:, 1:], none], dim=1))


def _power(values: Tensor, step: Tensor) -> Tensor:
    """Return p of values ~ h^p between each step and the coarser one before it; infinite for the first."""
    logs = values.clamp(min=torch.finfo(torch.float64).tiny).log()
    power = logs.diff(dim=1) / step.diff(dim=1)
    return torch.cat([torch.full_like(logs[:, :1], torch.inf), power], dim=1)
