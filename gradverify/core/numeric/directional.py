"""The derivative of every output along one direction."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.function.noise import Noise
from gradverify.core.function.portion import portion
from gradverify.core.function.sampler import Sampler, along
from gradverify.core.numeric.richardson import DEPTH, extrapolated
from gradverify.core.numeric.samples import BAR_FACTOR, NOISE_FACTOR, Estimate

FIRST = 2.0**-12  # first step along a direction, relative to the length scale
_CLOSER = (2.0**-17, 2.0**-22, 2.0**-26)  # and where it may be too long
_STAIR = 2.0**-24  # the height of those of float32
ROUNDING = 1e-9  # of a sum over the entries of a row, relative to its terms


def slope(sampled: Sampler, noise: Noise, direction: Tensor, first: float) -> Estimate:
    """Return J·direction with its error bar, (m,), from three steps, the first of which is given; costs 6 forwards.

    These are calls of their own: what this is held against may have come from many points in one call.
    """
    steps = [first * 0.5**k for k in range(DEPTH)]
    there = torch.stack([along(sampled, distance * direction) for distance in (*steps, *(-step for step in steps))])
    wide = 2 * torch.tensor(steps, dtype=there.dtype, device=there.device).unsqueeze(1)
    value, bar = torch.empty_like(there[0]), torch.empty_like(there[0])
    width = portion(value)
    for start in range(0, len(value), width):
        some = slice(start, start + width)
        difference = (there[:DEPTH, some] - there[DEPTH:, some]).div_(wide).unsqueeze(0)
        found = extrapolated(difference, noise.level[some] * (NOISE_FACTOR / steps[-1]))
        value[some], bar[some] = found.value[0], found.bar[0]
    return Estimate(value=value, bar=bar)


def differs(sampled: Sampler, noise: Noise, direction: Tensor, total: Estimate) -> Tensor:
    """Tell which outputs change otherwise along a direction (n,) than entries add up to, `total` (m,); (m,)."""
    return _off(slope(sampled, noise, direction, FIRST), total)


def differs_closer_by(sampled: Sampler, noise: Noise, direction: Tensor, total: Estimate, judged: Tensor) -> Tensor:
    """Tell which of the outputs `judged` do so for as near as one can tell; bool (m,).

    A kink between the point and the end of a step looks like a dependence; a true one is there at any step. Of those
    closer by, the one with the smallest bar decides: on a kink it is wide, and where rounding drowns the difference.
    One that could not have heard what the first step has heard excuses nothing.
    """
    far = slope(sampled, noise, direction, FIRST)
    off = _off(far, total) & judged
    if not bool(off.any()):
        return off
    closer = []
    for first in _CLOSER:
        if first < _STAIR:  # where all samples may lie on one stair
            noise = replace(noise, level=noise.loud)
        closer.append(slope(sampled, noise, direction, first))
    values, bars = torch.stack([found.value for found in closer]), torch.stack([found.bar for found in closer])
    best = bars.argmin(dim=0, keepdim=True)
    nearest = Estimate(value=values.gather(0, best).squeeze(0), bar=bars.gather(0, best).squeeze(0))
    heard = BAR_FACTOR * (nearest.bar + total.bar) < (far.value - total.value).abs()
    return off & (_off(nearest, total) | ~heard)


def _off(found: Estimate, total: Estimate) -> Tensor:
    """Tell which slopes are not what entries add up to; (m,)."""
    allowed = BAR_FACTOR * (found.bar + total.bar) + ROUNDING * total.value.abs()
    return ((found.value - total.value).abs() > allowed) & torch.isfinite(found.bar)
