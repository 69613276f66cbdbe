"""Small leaps between smooth pieces: what rounding makes of a term that cancels.

A quantity that moves in stairs of rounding, times one that moves smoothly, is smooth on each stair, with a slope that
is none of the function's. The steps that first reach the next stair give it away: there the differences depart from
the slope all at once, by what a leap of a few units of rounding amounts to.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.sampler import Sampler
from gradverify.core.numeric.samples import Estimate, Samples, central

_HEARD = 5.0  # times its noise, a difference departs from the slope
_SMOOTHLY = 64.0  # by more than this from one step to the next, no smooth function does: by h², it would be 16
_UNITS = 8.0  # of rounding, which a leap may be high


def leap(sampled: Sampler, samples: Samples, level: Tensor, slope: Estimate) -> Tensor:
    """Return how far the differences depart from a slope (C, m) where they first do so by a leap, 0 elsewhere; (C, m).

    `level` (C, K, m) is what noise may change in each difference.
    """
    apart = (central(samples) - slope.value.unsqueeze(1)).abs()
    heard = apart > _HEARD * (level + slope.bar.unsqueeze(1))
    order = torch.arange(apart.shape[1], device=apart.device).view(1, -1, 1)
    first = (heard * (order + 1)).argmax(dim=1, keepdim=True)  # the finest step at which it is heard
    finer = (first + 1).clamp(max=apart.shape[1] - 1)
    size = apart.gather(1, first).squeeze(1)
    step = samples.forth.expand_as(apart).gather(1, first).squeeze(1)
    largest = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0).max()
    height = _UNITS * sampled.unit * torch.maximum(sampled.size, largest)
    before = torch.maximum(apart, _HEARD * level).gather(1, finer).squeeze(1)
    sudden = size > _SMOOTHLY * before
    found = heard.any(dim=1) & (finer > first).squeeze(1) & sudden & (size * step <= height)
    return torch.where(found, size, 0.0)
