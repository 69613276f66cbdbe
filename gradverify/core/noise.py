"""How well the forward repeats and how finely it resolves: measured, never assumed.

The estimate is ECnoise: differences of high order of a smooth function along a line vanish faster than those of its
rounding noise, so what is left of them is the noise (Moré & Wild, SIAM J. Sci. Comput. 33(3), 2011, section 3). The
line is sampled on either side of the point, each side for itself and without the point, because a kink or a jump
there would look like noise; a side that hears far more than the other is taken to have crossed one.

What is left when the samples stand closer together tells noise from a function that varies on a length below their
distance: noise stays, smooth variation vanishes. So the distance shrinks for as long as the estimate follows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.sampler import Sampler, along
from gradverify.core.scale import Scales
from gradverify.core.together import lined_up

_POINTS = 8  # equispaced samples on each side of the point
_ORDERS = (3, 4, 5)  # orders of difference taken into account
_SPACING = 1.3 * 2.0**-20  # of the length scale: many float32 ulps, and far below what most functions feel
_CLOSER = 4.0  # by which the samples then move together
_CLOSEST = 11  # times, at most
_FOLLOWS = 30.0  # an estimate that falls by this much was no noise: order 3 of a smooth function falls by 64
_FASTEST = 1e5  # an estimate that falls by more fell into a stair of the forward: order 5 falls by 1024
_FALLS = 8.0  # an estimate that falls by less over two distances is noise
_PATIENCE = 3  # distances that are tried in any case
_RELIABLE = 1e-5  # but not above this part of the output, which is more than float32 has
_LOUD = 256.0  # noise above this multiple of rounding, beside the largest output, is worth a closer look
_SAFETY = 8.0  # from a standard deviation, the smallest of three estimates, to a bound
_CLEAN = 16.0  # a forward with noise below this multiple of rounding is not listened to twice
_CROSSED = 1e3  # a side that hears this many times more than the other has crossed a kink or a jump
_AT_ONCE = 1 << 15  # outputs whose differences are taken at a time: as many as stay in a cache
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A bound on each output's own error, (m,) float64, in the output's units."""

    level: Tensor
    rounding: Tensor  # the part that rounding the value to its own dtype explains


def measure(sampled: Sampler, lengths: Scales, seed: int) -> Noise:
    """Measure the noise of every output along one random direction; costs 8 forwards, more where it is large."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.rand(sampled.point.shape, generator=generator, dtype=torch.float64) + 0.5
    direction = direction * torch.where(torch.rand(direction.shape, generator=generator) < 0.5, -1.0, 1.0)
    length = torch.where(lengths.own > 0, lengths.own, lengths.shared)
    direction = direction.to(sampled.point.device) * length * _spacing(sampled)
    size = sampled.value.abs().nan_to_num(0.0, 0.0, 0.0)
    # An output that is exactly zero beside others that are not may be a sum that cancels.
    rounding = torch.where(size > 0, size, sampled.size) * sampled.unit + _TINY
    worth = _LOUD * torch.fmax(rounding, sampled.size * sampled.unit)
    level = before = earlier = _estimate(sampled, direction, rounding, worth)
    open_ = level > worth
    for times in range(_CLOSEST):
        if not bool(open_.any()):
            break
        direction = direction / _CLOSER
        closer = _estimate(sampled, direction, rounding, worth)
        follows = open_ & (closer * _FOLLOWS < level) & (before <= closer * _FASTEST)
        level = torch.where(follows, closer, level)
        falling = closer * _FALLS < torch.fmax(before, earlier)
        uncertain = falling | (closer > _RELIABLE * size) | (times < _PATIENCE)
        open_ &= uncertain & (closer > worth)
        before, earlier = closer, before
    return Noise(level=_pooled(sampled, level), rounding=rounding)


def repeats(sampled: Sampler) -> bool:
    """Tell whether a second forward at the same point gives bit for bit the same outputs."""
    again = along(sampled, torch.zeros_like(sampled.point))
    return torch.equal(torch.nan_to_num(again), torch.nan_to_num(sampled.value))


def _estimate(sampled: Sampler, direction: Tensor, rounding: Tensor, worth: Tensor) -> Tensor:
    """Return a bound on the noise from samples on one side of the point, and the other where the first is loud."""
    left = _one_side(sampled, -direction)
    if bool((left * _SAFETY <= worth * _CLEAN / _LOUD).all()):
        return torch.fmax(left * _SAFETY, rounding)
    right = _one_side(sampled, direction)
    quiet, loud = torch.fmax(torch.fmin(left, right), rounding), torch.fmax(left, right)
    measured = torch.where(loud <= _CROSSED * quiet, loud, quiet) * _SAFETY
    return torch.fmax(measured, rounding)


def _pooled(sampled: Sampler, level: Tensor) -> Tensor:
    """Raise what an output seems to vary by to what its tensor's outputs vary by, relative to their size.

    Eight samples sometimes show far less noise than there is, but seldom for most outputs.
    """
    size = sampled.value.abs()
    known = torch.isfinite(size) & (size > 0)
    share = torch.where(known, level / size, torch.nan)
    for block in sampled.outputs:
        own = share[block.coordinates]
        share[block.coordinates] = own.nanmedian() if own.numel() else own
    return torch.where(known, torch.fmax(level, share * size), level)


def _one_side(sampled: Sampler, direction: Tensor) -> Tensor:
    samples = lined_up(sampled, direction, [float(k) for k in range(1, _POINTS + 1)])
    return torch.cat([_from_differences(part) for part in torch.split(samples, _AT_ONCE, dim=1)])


def _spacing(sampled: Sampler) -> float:
    """Return the distance of the samples: coarser where the inputs' own dtype could not hold it."""
    coarsest = max(torch.finfo(primal.tensor.dtype).eps for primal in sampled.problem.primals)
    return max(_SPACING, 8 * coarsest)


def _from_differences(samples: Tensor) -> Tensor:
    """Return the smallest of the noise estimates of the difference orders; (points, m) -> (m,)."""
    estimates, differences = [], samples
    for order in range(1, max(_ORDERS) + 1):
        differences = differences[1:] - differences[:-1]
        if order in _ORDERS:
            factor = math.factorial(order) ** 2 / math.factorial(2 * order)
            estimates.append((differences.square().mean(dim=0) * factor).sqrt())
    return torch.stack(estimates).amin(dim=0)
