"""Kinks, jumps and edges of the domain, told apart from a wrong gradient.

With S(h) = |f(x+h) - 2 f(x) + f(x-h)| / h, a smooth function has S ~ h, |x|^1.5 has S ~ h^0.5, a kink has S ~ 1 and a
jump has S ~ 1/h; the one-sided quotients of a jump grow like 1/h too, also where S vanishes by symmetry. A kink at
distance d from the point looks smooth for h < d, so only steps finer than the finest one that looks nonsmooth are
trusted; if none of those can tell, the point counts as lying on the kink.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.ladder import HALVINGS, tableau
from gradverify.core.leap import leap
from gradverify.core.noise import Noise
from gradverify.core.plateau import stair, tilted_stair
from gradverify.core.sampler import Sampler
from gradverify.core.samples import (
    BAR_FACTOR,
    NOISE_FACTOR,
    Estimate,
    Samples,
    central,
    difference_noise,
    finest,
    one_sided,
    to_the_end,
    unmoved,
    void,
)

_BENT = 0.25  # S falling more slowly than this power of h is no smooth function
_TORN = -0.5  # S, or a one-sided quotient, growing faster than this power: no continuous one
_CALM = 0.7  # S falling at least like this power of h is that of a smooth function
_SEEN = 2  # steps at which a bend is calm, to say that the point is smooth
_AUDIBLE = 5.0  # how far above the noise a difference must stand to be heard
_LASTING = 4  # with fewer steps than this, one flag is all there can be
_RESOLVED = 1e-5  # a bar this small against the bend tells the two sides apart
_ROUGHLY = 1e-2  # and one this small on which of them the point lies
_CANCELLED = 4.0  # units of rounding, of the steepest slope around
_GROWN = 2.0**7  # by how much an output that is a difference of equal numbers may have amplified the inputs
_FAR = slice(5, 12)  # rungs that are neither as long as the input's scale nor so short as to lie within one stair
_FLIGHT = 2.0**-16  # stairs above this part of the output are none of float32
_ROUNDING = 64.0  # units of rounding of the largest output: what bends by less may do so by rounding
_CLOSE = 2.0**-20  # of the largest step: nearer than that, what lies there has been looked at
_STEADY = 5  # rungs over which a kink keeps its bend, and a jump its height
_SAME = 2.0  # up to this factor
_LATELY, _GROWTH = 4, 4.0  # rungs over which a quotient that has a limit does not grow by this much
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
    leap: Tensor  # by how much they depart from the estimate all at once, see `leap`


def examine(sampled: Sampler, noise: Noise, samples: Samples, known: Tensor | None = None) -> Local:
    """Judge every entry of a ladder of samples: smooth, kink, jump or edge, with the derivative where there is one.

    `known` (C, m) is the height of stairs that a shorter ladder has shown: finer steps may hide them again.
    """
    height = stair(sampled, samples)
    if known is not None:
        height = torch.maximum(height, known)
    difference, nothing = central(samples), void(samples)
    finite = to_the_end(torch.isfinite(difference) | nothing) & ~nothing
    measured = difference_noise(sampled, noise, samples)
    level, shape, smooth = _smooth(sampled, samples, finite, _raised(samples, height, measured))
    tilted = tilted_stair(sampled, samples, smooth)
    if bool((tilted > height).any()):
        height = torch.maximum(height, tilted)
        level, shape, smooth = _smooth(sampled, samples, finite, _raised(samples, height, measured))
    left, right = _sides(sampled, samples, level, _up_to_the_last(shape.rough) | ~shape.rough.any(dim=1, keepdim=True))
    size = _at_last(shape.rough, shape.size)
    seen_smooth = (shape.calm & ~_up_to_the_last(shape.rough)).sum(dim=1) >= _SEEN
    nonsmooth = shape.rough.any(dim=1) & (smooth.bar > _RESOLVED * size) & ~seen_smooth
    edge = ~finite.any(dim=1)
    torn = _at_last(shape.rough, _or_before(shape.torn).double()).bool()
    jump = nonsmooth & torn & _steady(shape.rough, _moves(sampled, samples))
    settled = (left.bar + right.bar) < _SETTLED * size
    kink = nonsmooth & ~jump & settled & ~edge & _steady(shape.rough, shape.size)
    one = _finite_one(left, right)
    reach = samples.forth.expand_as(shape.size)
    seen = _steepest(sampled, samples)
    low, high, outer = _between(left, right, smooth, size)
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
        close=shape.rough.any(dim=1) & (_at_last(shape.rough, reach) < _CLOSE * samples.forth[:, 0]),
        idle=unmoved(sampled, samples).all(dim=1),
        hidden=_cancelled(sampled, samples, seen),
        stairs=height > _FLIGHT * sampled.value.abs(),
        height=height,
        far=_far(difference),
        unsteady=shape.rough.any(dim=1) | (_scatter(samples).amax(dim=1) > noise.level),
        leap=leap(sampled, samples, measured, estimate),
        outside=~torch.isfinite(sampled.value).expand_as(edge) & ~torch.isfinite(estimate.value),
    )


def _smooth(sampled: Sampler, samples: Samples, finite: Tensor, level: Tensor) -> tuple[Tensor, _Shape, Estimate]:
    """Return the noise of the differences again, how the function looks, and the derivative if it is smooth."""
    shape = _shape(sampled, samples, level)
    usable = finite & ~_up_to_the_last(shape.rough)
    largest = samples.forth.amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    lengths = (samples.forth / largest).square()  # the square of a step may underflow
    return level, shape, tableau(central(samples), level, usable, lengths)


def _between(left: Estimate, right: Estimate, smooth: Estimate, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return between which slopes lies what is accepted at a kink, and whether the kink's two sides bound it.

    Next to a kink the slope of the point's own side may be known roughly, and where several kinks are near, its piece
    may have a slope that is not between the outermost.
    """
    low, high = torch.minimum(left.value, right.value), torch.maximum(left.value, right.value)
    slack = BAR_FACTOR * smooth.bar
    least, most = smooth.value - slack, smooth.value + slack
    roughly = smooth.bar <= _ROUGHLY * size
    outer = ~roughly | ((most >= low) & (least <= high))
    low = torch.where(outer, torch.where(roughly, torch.maximum(low, least), low), least)
    high = torch.where(outer, torch.where(roughly, torch.minimum(high, most), high), most)
    return low, high, outer


def suspicious(sampled: Sampler, noise: Noise, samples: Samples) -> Tensor:
    """Tell for each entry of the cheap pass whether the function bends there as no smooth one does; (C, m).

    The same question as `examine` asks, of the last two steps only, which are a factor of two apart.
    """
    level = difference_noise(sampled, noise, finest(samples, 1))[:, 0]
    level = torch.maximum(level, _ROUNDING / _AUDIBLE * sampled.unit * sampled.size / samples.forth[:, -1])
    left, right = one_sided(sampled, finest(samples, 2))
    bend, slope = (right - left).abs(), torch.maximum(left.abs(), right.abs())
    bent = (bend[:, -1] > _AUDIBLE * level) & (bend[:, -1] > 0.5**_BENT * bend[:, -2])
    torn = (slope[:, -1] > _AUDIBLE * level) & (slope[:, -1] > 0.5**_TORN * slope[:, -2])
    found: Tensor = bent | torn | ~torch.isfinite(samples.plus - samples.minus).all(dim=1)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """How the function looks at every step, all (C, K, m)."""

    size: Tensor  # how far the one-sided quotients are apart, or how large they grow
    rough: Tensor  # bool: not smooth at this step
    torn: Tensor  # bool: not continuous
    calm: Tensor  # bool: bends as a smooth function does, and audibly


def _shape(sampled: Sampler, samples: Samples, level: Tensor) -> _Shape:
    left, right = one_sided(sampled, samples)
    bend, slope = (right - left).abs(), torch.maximum(left.abs(), right.abs())
    step = samples.forth.log()
    bends, grows = _power(bend, step), _power(slope, step)
    floor = torch.maximum(_AUDIBLE * level, _ROUNDING * sampled.unit * _own_size(sampled, samples) / samples.forth)
    heard, slope_heard = bend > floor, slope > floor
    torn = (heard & (bends < _TORN)) | (slope_heard & (grows < _TORN))
    torn = _lasting(torn)
    rough = _lasting(heard & (bends < _BENT)) | torn
    size = torch.where(torn, torch.maximum(bend, slope), bend)
    return _Shape(size=size, rough=rough, torn=torn, calm=heard & (bends > _CALM))


def _own_size(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the largest magnitude of each output around the point, (C, K, m)."""
    return torch.fmax(torch.fmax(samples.plus.abs(), samples.minus.abs()), sampled.value.abs())


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


def _up_to_the_last(flags: Tensor) -> Tensor:
    """Mark every rung that has a flagged rung at or after it."""
    return flags.to(torch.int8).flip(1).cummax(dim=1).values.flip(1).bool()


def _raised(samples: Samples, height: Tensor, level: Tensor) -> Tensor:
    """Return the noise of the differences, with stairs of this height (C, m) and the ladder's scatter; (C, K, m)."""
    unsteady = torch.maximum(height.unsqueeze(1), _scatter(samples))
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
    return noise.flip(1).cummax(dim=1).values.flip(1)


def _cancelled(sampled: Sampler, samples: Samples, seen: Tensor) -> Tensor:
    """Return what cancellation may hide where an output does not move at all but for the largest steps; (C, m).

    Where terms cancel, they leave rounding of their own size, as the steepest slope around shows it, and where nothing
    at all is left, of the size that the inputs may have grown to.
    """
    unmoving = unmoved(sampled, samples)
    inputs = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0).amax() / samples.forth[:, 0]
    size = torch.where(sampled.value == 0, torch.maximum(seen, _GROWN * inputs), seen)
    # What does not move it may still do so by less than the rounding of its tensor's largest.
    longest = torch.where(to_the_end(unmoving), samples.forth, 0.0).amax(dim=1)
    least = sampled.size / longest.clamp(min=torch.finfo(torch.float64).tiny)
    return _CANCELLED * sampled.unit * torch.where(unmoving[:, HALVINGS - 1], torch.maximum(size, least), 0.0)


def _far(difference: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest difference at steps well above the finest; both (C, m)."""
    some = difference[:, _FAR]
    low, high = some.nan_to_num(torch.inf).amin(dim=1), some.nan_to_num(-torch.inf, -torch.inf, -torch.inf).amax(dim=1)
    return torch.where(torch.isfinite(low), low, torch.nan), torch.where(torch.isfinite(high), high, torch.nan)


def _or_before(flags: Tensor) -> Tensor:
    """Mark flagged rungs and those after one: at the last rough rung itself, little of a jump may be left."""
    return flags | torch.cat([torch.zeros_like(flags[:, :1]), flags[:, :-1]], dim=1)


def _steady(rough: Tensor, size: Tensor) -> Tensor:
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


def _moves(sampled: Sampler, samples: Samples) -> Tensor:
    """Return how far the output moves at each step, to the side where it moves further; (C, K, m)."""
    return torch.maximum((samples.plus - sampled.value).abs(), (samples.minus - sampled.value).abs())


def _steepest(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the largest slope from the point to any sample on the coarsest rungs; (C, m)."""
    left, right = one_sided(sampled, samples)
    slopes = torch.maximum(left.abs().nan_to_num(0.0, 0.0), right.abs().nan_to_num(0.0, 0.0))
    return slopes[:, :HALVINGS].amax(dim=1)


def _at_last(flags: Tensor, values: Tensor) -> Tensor:
    """Return `values` at the finest flagged rung, 0 where none is flagged; (C, K, m) -> (C, m)."""
    order = torch.arange(1, flags.shape[1] + 1, device=flags.device).view(1, -1, 1)
    last = (flags * order).argmax(dim=1, keepdim=True)
    return torch.where(flags.any(dim=1), values.gather(1, last).squeeze(1), 0.0)


def _sides(sampled: Sampler, samples: Samples, level: Tensor, beyond: Tensor) -> tuple[Estimate, Estimate]:
    """Return the one-sided derivatives, from steps that reach `beyond` (C, K, m) what is rough."""
    nothing = void(samples)
    found = []
    for quotient, steps in zip(one_sided(sampled, samples), (samples.back, samples.forth), strict=True):
        usable = to_the_end(torch.isfinite(quotient) | nothing) & ~nothing & beyond
        slope = tableau(quotient, 2 * level, usable, steps)
        grows = _grows_to_the_end(quotient, usable, level)
        found.append(replace(slope, bar=torch.where(grows, torch.inf, slope.bar)))
    return found[0], found[1]


def _grows_to_the_end(quotient: Tensor, usable: Tensor, level: Tensor) -> Tensor:
    """Tell where a one-sided quotient still grows audibly at the finest steps, and so has no limit in sight; (C, m)."""
    heard = usable & (quotient.abs() > _AUDIBLE * level)
    order = torch.arange(1, usable.shape[1] + 1, device=usable.device).view(1, -1, 1)
    last = (heard * order).argmax(dim=1, keepdim=True)
    before = (last - _LATELY).clamp(min=0)
    size = quotient.abs()
    grown = size.gather(1, last) > _GROWTH * size.gather(1, before)
    return (grown & (last >= _LATELY)).squeeze(1)


def _finite_one(left: Estimate, right: Estimate) -> Estimate:
    better = left.bar <= right.bar
    return Estimate(value=torch.where(better, left.value, right.value), bar=torch.where(better, left.bar, right.bar))
