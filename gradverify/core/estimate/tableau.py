"""Ladders of steps, and the derivatives extrapolated from them: two-sided, and one-sided at kinks and edges.

Source: Ridders, Accurate computation of F'(x) and F'(x) F''(x), Adv. Eng. Softw. 4(2), 1982.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.estimate.samples import BAR_FACTOR, Estimate, Samples, Steps, finite_to_finest
from gradverify.core.model.magnitudes import TINY, LengthScales, any_set, last_set, suffix_maximum, suffix_minimum
from gradverify.core.tuning import CLEARLY_LESS, CONVINCING, SMALL_PART

HALVINGS = 8  # rungs a factor of two apart; the later ones are a factor of four apart
COARSE = 2.0**-20  # of the larger length scale: the coarse part of the ladder ends with the first rung below
_FINE = 2.0**-47  # end of the fine part, relative to the smaller length scale: some tens of ulps
RUNGS = 32  # steps of a ladder, about; a fine part of more than twice as many has wider ones before its last so many
_ORDERS = 5  # columns of the tableau beyond the first
_TO_THE_END = 1000.0  # number of rungs, at most, that a drift may go on for, down to the smallest float
MEASURABLE = 5.0  # times the noise: smaller differences are not measurable
_ROUGHLY = 1e-2  # relative to the kink's bend: a smaller bar shows on which side of the kink the point lies


def halving_steps(lengths: LengthScales) -> Steps:
    """Return the first steps, from the larger length scale down, each half the previous one."""
    return _steps_by_powers(lengths, range(HALVINGS))


def coarse_steps(lengths: LengthScales) -> Steps:
    """Return the halving steps and, by factors of four, those down to where smooth functions are almost linear."""
    return _steps_by_powers(lengths, [*range(HALVINGS), *range(HALVINGS + 1, round(-math.log2(COARSE)) + 2, 2)])


def fine_steps(lengths: LengthScales, chosen: Tensor) -> Steps:
    """Return the steps after `coarse_steps`, by factors of four, to some tens of ulps of the chosen coordinates.

    The first of them are further apart if a coordinate is tiny beside others.
    """
    own, shared = lengths.own[chosen], lengths.shared[chosen]
    smallest = torch.where(own > 0, torch.minimum(own, shared), shared * 2.0**-24) * _FINE
    exponents = torch.log2(_top(lengths)[chosen]) - torch.log2(smallest.clamp(min=TINY))  # a quotient may overflow
    span = float(exponents.max()) + math.log2(COARSE / 2)
    depth, first = math.ceil(span / 2), round(-math.log2(COARSE)) + 1
    bridge = [1 + round((depth - RUNGS - 1) * k / RUNGS) for k in range(RUNGS)]  # rungs down to the finest ones
    rungs = [*bridge, *range(depth - RUNGS, depth + 1)] if depth > RUNGS + RUNGS else range(1, depth + 1)
    return _steps_by_powers(lengths, [first + 2 * k for k in rungs])


def central_tableau(samples: Samples, noise: Tensor, usable: Tensor) -> Estimate:
    """Return the derivatives of functions that are smooth at all `usable` steps, from their central differences.

    `noise` (C, K, m) bounds the noise of each difference.
    """
    largest = samples.forth.amax(dim=1, keepdim=True).clamp(min=TINY)
    lengths = (samples.forth / largest).square()  # relative, because the square of a step may underflow
    return tableau(samples.difference, noise, usable, lengths, smooth=True)


def tableau(start: Tensor, noise: Tensor, usable: Tensor, lengths: Tensor, *, smooth: bool = False) -> Estimate:
    """Return the entry of Neville's tableau with the smallest error bar, over the rungs of a ladder.

    `start` (C, K, m) holds the differences, `noise` their noise bounds, `usable` the mask of those to use. The error is
    a power series in `lengths` (C, K, 1 or m): the squared steps for central differences, the steps for one-sided ones.
    With `smooth`, the function is smooth at all usable steps, and an entry that contradicts finer ones of its column
    gets a wider bar; a one-sided difference near a kink need not satisfy this.
    """
    entry = torch.where(usable, start, torch.nan)
    low, high = _envelope(entry, noise)
    values, bars = [], []
    for order in range(1, min(_ORDERS, start.shape[1] - 1) + 1):
        coarse, fine = entry[:, :-1], entry[:, 1:]
        ratio = lengths[:, :-order] / lengths[:, order:]
        entry = fine + (fine - coarse) / (ratio - 1)
        uncertainty = (entry - coarse).abs() + noise[:, order:]
        contradicted = _outside(entry, low[:, order:], high[:, order:])
        if smooth:
            contradicted = torch.maximum(contradicted, _outside(entry, *_narrowed(entry, uncertainty)))
        values.append(entry)
        bars.append(uncertainty + contradicted)
    value, bar = torch.cat(values, dim=1), torch.cat(bars, dim=1)
    bar = torch.where(torch.isfinite(bar), bar, torch.inf)
    best = bar.argmin(dim=1, keepdim=True)
    drift = _TO_THE_END * _drift(torch.where(usable, start, torch.nan), lengths)
    return Estimate(value=value.gather(1, best).squeeze(1), bar=bar.gather(1, best).squeeze(1) + drift)


def sides(samples: Samples, level: Tensor, beyond: Tensor) -> tuple[Estimate, Estimate]:
    """Return the left and right derivative, from the steps in `beyond`.

    `beyond` (C, K, m) is the mask of steps that are long enough to reach past a nonsmooth point; `level` (C, K, m) is
    the noise of the central differences.
    """
    quotient, steps = torch.cat(samples.quotients), torch.cat([samples.back, samples.forth])
    vanishing, level, beyond = (torch.cat([each, each]) for each in (samples.vanished, level, beyond))
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


def _drift(difference: Tensor, lengths: Tensor) -> Tensor:
    """Return the change from rung to rung of differences that never converge; (C, m), 0 for those that do.

    Differences proportional to the logarithm of the step never converge, for example those of x log(x + 1e-300) at 0.
    """
    zero = torch.zeros_like(difference[:, 0])
    if difference.shape[1] < CONVINCING + 2:
        return zero
    change = difference.diff(dim=1) / lengths.log().diff(dim=1)
    ratio = change[:, 1:] / change[:, :-1]
    drifting = ((ratio - 1).abs() <= SMALL_PART).unfold(1, CONVINCING, 1).all(dim=-1)
    if not any_set(drifting):
        return zero
    size = difference.diff(dim=1).abs()
    return torch.where(drifting, size[:, CONVINCING:], 0.0).amax(dim=1)


def _top(lengths: LengthScales) -> Tensor:
    return torch.maximum(lengths.own, lengths.shared)  # a larger step would change the sign of the coordinate


def _steps_by_powers(lengths: LengthScales, exponents: Sequence[int]) -> Steps:
    """Return the steps 2^-k of the larger length scale, for each of the exponents k."""
    factors = 2.0 ** -torch.tensor(exponents, dtype=torch.float64, device=lengths.own.device)
    return Steps(base=_top(lengths), factors=factors)


def _envelope(difference: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bounds that each rung and all finer ones put on the derivative; both (C, K, m).

    The error of a difference is assumed to be at most twice its distance from the coarser one before it, an
    overestimate for errors of any order in h, plus a multiple of its noise.
    """
    doubt = 2 * difference.diff(dim=1).abs() + MEASURABLE * noise[:, 1:]
    return _narrowed(difference, torch.cat([torch.full_like(doubt[:, :1], torch.inf), doubt], dim=1))


def _narrowed(value: Tensor, doubt: Tensor) -> tuple[Tensor, Tensor]:
    """Return the intersection of the intervals value ± doubt of each rung and all finer ones; low and high."""
    low = (value - doubt).nan_to_num(-torch.inf, torch.inf, -torch.inf)
    high = (value + doubt).nan_to_num(torch.inf, torch.inf, -torch.inf)
    return suffix_maximum(low), suffix_minimum(high)


def _outside(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the distance of values from the interval [low, high], 0 inside."""
    return torch.maximum(low - value, value - high).clamp(min=0.0)


def _grows_to_the_end(quotient: Tensor, usable: Tensor, level: Tensor) -> Tensor:
    """Mask of one-sided quotients that still grow, above the noise, at the finest steps; (C, m).

    No limit is in sight there.
    """
    measurable = usable & (quotient.abs() > MEASURABLE * level)
    last = last_set(measurable)
    before = (last - CONVINCING).clamp(min=0)
    size = quotient.abs()
    grown = CLEARLY_LESS * size.gather(1, last) > size.gather(1, before)
    return (grown & (last >= CONVINCING)).squeeze(1)
