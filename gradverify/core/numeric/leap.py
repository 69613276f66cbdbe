"""Small leaps between smooth pieces: what rounding makes of a term that cancels.

A quantity that moves in stairs of rounding, times one that moves smoothly, is smooth on each stair, with a slope that
is none of the function's. The steps that first reach the next stair give it away: there the differences depart from
the slope all at once, by what a leap of a few units of rounding amounts to, and not little by little, as they may have
done at finer steps because the function bends.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.sampler import Sampler
from gradverify.core.numeric.samples import Estimate, Samples, central

_HEARD = 5.0  # times its noise, a difference departs from the slope
_SMOOTHLY = 64.0  # by more than this from one step to the next, no smooth function does: by h², it would be 16
_TWICE = 16.0 * _SMOOTHLY  # and by more than this over two, where smooth departures may cancel at the step between
_ONWARDS = 16.0  # by no more than this at the step after a leap: an exponential departs faster and faster
_UNITS = 8.0  # of rounding, which a leap may be high


def leap(sampled: Sampler, samples: Samples, level: Tensor, slope: Estimate) -> Tensor:
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


def _finer(values: Tensor, rungs: int) -> Tensor:
    """Return the values so many rungs further down, or at the last one where the ladder ends before; (C, K, m)."""
    last = values[:, -1:].expand(-1, min(rungs, values.shape[1]), -1)
    return torch.cat([values[:, rungs:], last], dim=1)
