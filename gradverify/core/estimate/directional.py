"""The derivative of every output along one direction."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.estimate.richardson import DEPTH, extrapolated
from gradverify.core.estimate.samples import BAR_FACTOR, NOISE_FACTOR, Estimate
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler, along
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.model.memory import portions

FIRST = 2.0**-12  # first step along a direction, relative to the length scale
_CLOSER = (2.0**-17, 2.0**-22, 2.0**-26)  # and where it may be too long
_SMALL = 2.0**-14  # the last step where none is too long
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
    for some in portions(value):
        difference = (there[:DEPTH, some] - there[DEPTH:, some]).div_(wide).unsqueeze(0)
        found = extrapolated(difference, noise.level[some] * (NOISE_FACTOR / steps[-1]))
        value[some], bar[some] = found.value[0], found.bar[0]
    return Estimate(value=value, bar=bar)


def differs_where_straight(sampled: Sampler, noise: Noise, direction: Tensor, total: Estimate) -> bool:
    """Tell whether an output changes otherwise along a direction (n,) than entries add up to, `total` (m,).

    Of a function that is a line in each of its inputs two steps are enough: all inputs together bend it like a
    polynomial. Costs 4 forwards.
    """
    far, near = (
        (along(sampled, step * direction) - along(sampled, -step * direction)).div_(2 * step)
        for step in (2 * _SMALL, _SMALL)
    )
    value, bar = torch.lerp(far, near, 4 / 3), noise.level * (NOISE_FACTOR / _SMALL)
    return not all_set((value - total.value).abs() <= _allowed(bar, total))


def differs_closer_by(sampled: Sampler, noise: Noise, direction: Tensor, total: Estimate, judged: Tensor) -> Tensor:
    """Tell which of the outputs `judged` do so for as near as one can tell; bool (m,).

    A kink between the point and the end of a step looks like a dependence; a true one is there at any step. Of those
    closer by, the one with the smallest bar decides: on a kink it is wide, and where rounding drowns the difference.
    One that could not have heard what the first step has heard excuses nothing.
    """
    far = slope(sampled, noise, direction, FIRST)
    off = _off(far, total) & judged
    if not any_set(off):
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
    return ((found.value - total.value).abs() > _allowed(found.bar, total)) & torch.isfinite(found.bar)


def _allowed(bar: Tensor, total: Estimate) -> Tensor:
    return BAR_FACTOR * (bar + total.bar) + ROUNDING * total.value.abs()
