"""One-sided derivatives: the two at a kink, and the finite one at the edge of the domain."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.estimate.samples import BAR_FACTOR, Estimate, Samples, one_sided, trusted, void
from gradverify.core.estimate.tableau import tableau
from gradverify.core.forward.sampler import Sampler

_ROUGHLY = 1e-2  # a bar this small against the bend tells on which of the two sides the point lies
_LATELY, _GROWTH = 4, 4.0  # rungs over which a quotient that has a limit does not grow by this much
_AUDIBLE = 5.0  # how far above the noise a difference must stand to be heard


def sides(sampled: Sampler, samples: Samples, level: Tensor, beyond: Tensor) -> tuple[Estimate, Estimate]:
    """Return the one-sided derivatives, from steps that reach `beyond` (C, K, m) what is rough."""
    quotient, steps = torch.cat(one_sided(sampled, samples)), torch.cat([samples.back, samples.forth])
    nothing, level, beyond = (torch.cat([each, each]) for each in (void(samples), level, beyond))
    usable = trusted(quotient, nothing) & beyond
    slope = tableau(quotient, 2 * level, usable, steps)
    values = slope.value.chunk(2)
    bars = torch.where(_grows_to_the_end(quotient, usable, level), torch.inf, slope.bar).chunk(2)
    return Estimate(value=values[0], bar=bars[0]), Estimate(value=values[1], bar=bars[1])


def between(left: Estimate, right: Estimate, smooth: Estimate, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


def finite_one(left: Estimate, right: Estimate) -> Estimate:
    """Return of two one-sided derivatives the one that is known better: at an edge, the one inside."""
    better = left.bar <= right.bar
    return Estimate(value=torch.where(better, left.value, right.value), bar=torch.where(better, left.bar, right.bar))


def _grows_to_the_end(quotient: Tensor, usable: Tensor, level: Tensor) -> Tensor:
    """Tell where a one-sided quotient still grows audibly at the finest steps, and so has no limit in sight; (C, m)."""
    heard = usable & (quotient.abs() > _AUDIBLE * level)
    order = torch.arange(1, usable.shape[1] + 1, device=usable.device).view(1, -1, 1)
    last = (heard * order).argmax(dim=1, keepdim=True)
    before = (last - _LATELY).clamp(min=0)
    size = quotient.abs()
    grown = size.gather(1, last) > _GROWTH * size.gather(1, before)
    return (grown & (last >= _LATELY)).squeeze(1)
