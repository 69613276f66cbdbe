"""Ladders of steps, and the extrapolation tableau of central differences over them (Ridders)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Estimate, Samples, Steps, central
from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.model.magnitudes import any_set, suffix_maximum, suffix_minimum

HALVINGS = 8  # rungs a factor of two apart, before they are a factor of four apart
_COARSE = 2.0**-20  # where the coarse part of the ladder ends, relative to the larger length scale
_LEAST = torch.finfo(torch.float64).tiny
_FINE = 2.0**-47  # where the fine part ends, relative to the smaller one: some tens of ulps
_FINEST = 28  # rungs of the fine part that are a factor of four apart in any case
_BRIDGE = 32  # those above them are this many at most, further apart where a coordinate is tiny beside others
_ORDERS = 5  # columns of the tableau beyond the first
_ALIKE = (0.9, 1.15)  # of how far it has moved before, a difference moves on from rung to rung
_LASTS = 6  # times in a row: noise does not do so by accident
_STILL = 0.5  # of how far it moves there, it moves at finer steps, where it settles nowhere
_TO_THE_END = 1000.0  # rungs there are, at most, down to the smallest number
_DOUBT = 3.0  # how many times its noise a difference may be off without contradicting anything


def halving_steps(lengths: LengthScales) -> Steps:
    """Return the first steps, from the larger length scale down, each half the one before."""
    return Steps(base=_top(lengths), factors=_powers(range(HALVINGS), lengths))


def coarse_steps(lengths: LengthScales) -> Steps:
    """Return the first steps and those that follow, by fours, to where smooth functions have long become straight."""
    exponents = [*range(HALVINGS), *range(HALVINGS + 1, round(-math.log2(_COARSE)) + 2, 2)]
    return Steps(base=_top(lengths), factors=_powers(exponents, lengths))


def fine_steps(lengths: LengthScales, chosen: Tensor) -> Steps:
    """Return the steps that follow, by fours, to what the chosen coordinates themselves can barely resolve."""
    own, shared = lengths.own[chosen], lengths.shared[chosen]
    smallest = torch.where(own > 0, torch.minimum(own, shared), shared * 2.0**-24) * _FINE
    exponents = torch.log2(_top(lengths)[chosen]) - torch.log2(smallest.clamp(min=_LEAST))  # a quotient may overflow
    span = float(exponents.max()) + math.log2(_COARSE / 2)
    depth, first = math.ceil(span / 2), round(-math.log2(_COARSE)) + 1
    apart = [1 + round((depth - _FINEST - 1) * k / _BRIDGE) for k in range(_BRIDGE)]  # rungs down to the finest ones
    rungs = [*apart, *range(depth - _FINEST, depth + 1)] if depth > _FINEST + _BRIDGE else range(1, depth + 1)
    return Steps(base=_top(lengths), factors=_powers([first + 2 * k for k in rungs], lengths))


def central_tableau(samples: Samples, noise: Tensor, usable: Tensor) -> Estimate:
    """Return the derivatives of functions that are smooth wherever they are `usable`, from their central differences.

    `noise` (C, K, m) is what noise alone may change in each difference.
    """
    largest = samples.forth.amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    lengths = (samples.forth / largest).square()  # the square of a step may underflow
    return tableau(central(samples), noise, usable, lengths, smooth=True)


def tableau(start: Tensor, noise: Tensor, usable: Tensor, lengths: Tensor, *, smooth: bool = False) -> Estimate:
    """Return the best entry of Neville's tableau over the rungs of a ladder.

    `start` (C, K, m) holds the differences, `noise` what noise alone may change in each, `usable` which to trust;
    `lengths` (C, K, 1 or m) is what the error is a power series in: the squared steps for central differences, the
    steps for one-sided ones. Of a function that is `smooth` wherever it is usable, as it need not be on the way to a
    kink, an entry must not contradict the finer ones of its column.
    """
    entry = torch.where(usable, start, torch.nan)
    low, high = _envelope(entry, noise)
    values, bars = [], []
    for order in range(1, min(_ORDERS, start.shape[1] - 1) + 1):
        coarse, fine = entry[:, :-1], entry[:, 1:]
        ratio = lengths[:, :-order] / lengths[:, order:]
        entry = fine + (fine - coarse) / (ratio - 1)
        moved_by = torch.maximum((entry - fine).abs(), (entry - coarse).abs())
        own = moved_by + noise[:, order:]
        contradicted = _outside(entry, low[:, order:], high[:, order:])
        if smooth:
            contradicted = torch.maximum(contradicted, _outside(entry, *_narrowed(entry, own)))
        values.append(entry)
        bars.append(own + contradicted)
    value, bar = torch.cat(values, dim=1), torch.cat(bars, dim=1)
    bar = torch.where(torch.isfinite(bar), bar, torch.inf)
    best = bar.argmin(dim=1, keepdim=True)
    onwards = _TO_THE_END * _drift(torch.where(usable, start, torch.nan), noise, lengths)
    return Estimate(value=value.gather(1, best).squeeze(1), bar=bar.gather(1, best).squeeze(1) + onwards)


def _drift(difference: Tensor, noise: Tensor, lengths: Tensor) -> Tensor:
    """Return by how much differences move on from rung to rung, and settle nowhere; (C, m), zero where they settle.

    So they do where they go by the logarithm of the step, as those of x log(x + 1e-300) do at 0.
    """
    none = torch.zeros_like(difference[:, 0])
    if difference.shape[1] < _LASTS + 2:
        return none
    change = difference.diff(dim=1) / lengths.log().diff(dim=1)
    ratio = change[:, 1:] / change[:, :-1]
    low, high = _ALIKE
    lasts = ((ratio >= low) & (ratio <= high)).unfold(1, _LASTS, 1).all(dim=-1)
    if not any_set(lasts):
        return none
    size = difference.diff(dim=1).abs()
    finer = suffix_minimum(torch.maximum(size, noise[:, 1:]).nan_to_num(torch.inf))[:, _LASTS:]  # as far as heard
    return torch.where(lasts & (finer >= _STILL * size[:, _LASTS:]), size[:, _LASTS:], 0.0).amax(dim=1)


def _top(lengths: LengthScales) -> Tensor:
    return torch.maximum(lengths.own, lengths.shared)  # a larger step would change the coordinate's sign


def _powers(exponents: Sequence[int], lengths: LengthScales) -> Tensor:
    return 2.0 ** -torch.tensor(exponents, dtype=torch.float64, device=lengths.own.device)


def _envelope(difference: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return between what each rung and all finer ones allow the derivative to lie; both (C, K, m).

    A difference is taken to be off by no more than twice its distance from the coarser one before it, which for
    errors of any order in h is an overestimate, and some of its noise.
    """
    doubt = 2 * difference.diff(dim=1).abs() + _DOUBT * noise[:, 1:]
    return _narrowed(difference, torch.cat([torch.full_like(doubt[:, :1], torch.inf), doubt], dim=1))


def _narrowed(value: Tensor, doubt: Tensor) -> tuple[Tensor, Tensor]:
    """Return between what each value, give or take its doubt, and all finer ones allow the derivative to lie."""
    low = (value - doubt).nan_to_num(-torch.inf, torch.inf, -torch.inf)
    high = (value + doubt).nan_to_num(torch.inf, torch.inf, -torch.inf)
    return suffix_maximum(low), suffix_minimum(high)


def _outside(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return how far values lie outside of what is allowed."""
    return torch.maximum(low - value, value - high).clamp(min=0.0)
