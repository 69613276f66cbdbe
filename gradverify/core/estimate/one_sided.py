"""One-sided derivatives: the two at a kink, and the finite one at the edge of the domain."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.estimate.samples import (
    BAR_FACTOR,
    Estimate,
    Samples,
    finite_to_finest,
    is_vanished,
    one_sided_quotients,
)
from gradverify.core.estimate.tableau import tableau
from gradverify.core.forward.sampler import Sampler

_ROUGHLY = 1e-2  # relative to the kink's bend: a smaller bar shows on which side of the kink the point lies
_LAST_RUNGS, _GROWTH = 4, 4.0  # rungs, factor: a quotient that has a limit grows by less
_MEASURABLE = 5.0  # times the noise: smaller differences are not measurable


def sides(sampled: Sampler, samples: Samples, level: Tensor, beyond: Tensor) -> tuple[Estimate, Estimate]:
    """Return the left and right derivative, from the steps in `beyond`.

    `beyond` (C, K, m) is the mask of steps that are long enough to reach past a nonsmooth point; `level` (C, K, m) is
    the noise of the central differences.
    """
    quotient, steps = torch.cat(one_sided_quotients(sampled, samples)), torch.cat([samples.back, samples.forth])
    vanishing, level, beyond = (torch.cat([each, each]) for each in (is_vanished(samples), level, beyond))
    usable = finite_to_finest(quotient, vanishing) & beyond
    slope = tableau(quotient, 2 * level, usable, steps)
    values = slope.value.chunk(2)
    bars = torch.where(_grows_to_the_end(quotient, usable, level), torch.inf, slope.bar).chunk(2)
    return Estimate(value=values[0], bar=bars[0]), Estimate(value=values[1], bar=bars[1])


def accepted_interval(left: Estimate, right: Estimate, smooth: Estimate, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the interval of slopes accepted at a kink, and a mask of entries whose interval the two sides bound.

    If the point lies beside the kink, the slope of its own piece may be known roughly (`smooth`), which narrows the
    interval. If several kinks are close together, that slope may lie outside the two sides; the interval is then its
    error bar. `size` (C, m) is the difference between the two sides.
    """
    low, high = torch.minimum(left.value, right.value), torch.maximum(left.value, right.value)
    slack = BAR_FACTOR * smooth.bar
    least, most = smooth.value - slack, smooth.value + slack
    known = smooth.bar <= _ROUGHLY * size
    outer = ~known | ((most >= low) & (least <= high))
    low = torch.where(outer, torch.where(known, torch.maximum(low, least), low), least)
    high = torch.where(outer, torch.where(known, torch.minimum(high, most), high), most)
    return low, high, outer


def better_side(left: Estimate, right: Estimate) -> Estimate:
    """Return the one-sided derivative with the smaller bar: at an edge of the domain, the one inside."""
    better = left.bar <= right.bar
    return Estimate(value=torch.where(better, left.value, right.value), bar=torch.where(better, left.bar, right.bar))


def _grows_to_the_end(quotient: Tensor, usable: Tensor, level: Tensor) -> Tensor:
    """Mask of one-sided quotients that still grow, above the noise, at the finest steps; (C, m).

    No limit is in sight there.
    """
    measurable = usable & (quotient.abs() > _MEASURABLE * level)
    order = torch.arange(1, usable.shape[1] + 1, device=usable.device).view(1, -1, 1)
    last = (measurable * order).argmax(dim=1, keepdim=True)
    before = (last - _LAST_RUNGS).clamp(min=0)
    size = quotient.abs()
    grown = size.gather(1, last) > _GROWTH * size.gather(1, before)
    return (grown & (last >= _LAST_RUNGS)).squeeze(1)
