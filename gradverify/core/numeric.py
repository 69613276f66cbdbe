"""Finite differences with an error bar per entry.

Two passes. The cheap one takes three central differences per coordinate and extrapolates them (Richardson). The
thorough one, for coordinates in doubt, takes a ladder of steps over many orders of magnitude, builds the whole
extrapolation tableau and keeps per entry the candidate with the smallest error estimate (Ridders, Adv. Eng. Softw.
4(2), 1982; Numerical Recipes, `dfridr`), leaving out steps at which the function does not look smooth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.noise import Noise
from gradverify.core.sampler import Sampler, moved, representable

CHEAP_STEP = 2.0**-8  # first step of the cheap pass, relative to the length scale
CHEAP_RATIO = 2.0
CHEAP_STEPS = 3
NOISE_FACTOR = 1.5  # by how much extrapolation amplifies the noise of a difference
_HALVINGS = 8  # rungs of the ladder a factor of two apart, before they are a factor of four apart
_FINEST = 22  # rungs after that, at most
_ORDERS = 5  # columns of the extrapolation tableau beyond the first
_EPS = torch.finfo(torch.float64).eps
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The forward on both sides of the point for C coordinates and K steps, coarse to fine."""

    columns: Tensor  # (C,) coordinate moved
    forth: Tensor  # (C, K) x + h - x, exactly
    back: Tensor  # (C, K) x - (x - h), exactly
    plus: Tensor  # (C, K, m)
    minus: Tensor  # (C, K, m)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Derivatives with their error bars, each (C, m); the bar is infinite where nothing could be said."""

    value: Tensor
    bar: Tensor


def sample(sampled: Sampler, columns: Tensor, steps: Tensor) -> Samples:
    """Evaluate the forward at x ± h for every column and step; `steps` is (C, K), positive, coarse to fine."""
    base = sampled.point[columns].unsqueeze(1)
    above = representable(sampled, columns, base + steps)
    below = representable(sampled, columns, base - steps)
    count, depth = steps.shape
    results = torch.stack(
        [
            moved(sampled, column, value)
            for side in (above, below)
            for column, values in zip(columns.tolist(), side.tolist(), strict=True)
            for value in values
        ]
    ).reshape(2, count, depth, sampled.value.numel())
    return Samples(columns=columns, forth=above - base, back=base - below, plus=results[0], minus=results[1])


def cheap(sampled: Sampler, noise: Noise, samples: Samples) -> Estimate:
    """Extrapolate three central differences; the bar is how far the last extrapolation moved the value, plus noise."""
    difference = central(samples)
    first = (4 * difference[:, 1] - difference[:, 0]) / 3
    second = (4 * difference[:, 2] - difference[:, 1]) / 3
    value = (16 * second - first) / 15
    bar = (value - second).abs() + difference_noise(sampled, noise, samples)[:, 2]
    return Estimate(value=value, bar=torch.where(torch.isfinite(bar), bar, torch.inf))


def ladder_steps(own: Tensor, shared: Tensor) -> Tensor:
    """Return the steps of the thorough pass, (C, K): from above the larger scale to far below the smaller one.

    Large steps halve, because there a smooth function is extrapolated; small ones shrink by four, because there only
    kinks and edges close by are looked for.
    """
    top = 2 * torch.maximum(own, shared)
    smallest = torch.where(own > 0, torch.minimum(own, shared), shared * 2.0**-24) * 2.0**-34
    span = float(torch.log2(top / smallest).max())
    fine = min(math.ceil((span - _HALVINGS) / 2), _FINEST)
    exponents = [*range(_HALVINGS), *(_HALVINGS + 2 * k for k in range(fine))]
    return top.unsqueeze(1) * 2.0 ** -torch.tensor(exponents, dtype=torch.float64, device=own.device)


def tableau(start: Tensor, noise: Tensor, usable: Tensor, lengths: Tensor) -> Estimate:
    """Return the best entry of Neville's tableau over the rungs of a ladder.

    `start` (C, K, m) holds the differences, `noise` what noise alone may change in each, `usable` which to trust;
    `lengths` (C, K) is what the error is a power series in: the squared steps for central differences, the steps for
    one-sided ones.
    """
    entry = torch.where(usable, start, torch.nan)
    values, bars = [], []
    for order in range(1, min(_ORDERS, start.shape[1] - 1) + 1):
        coarse, fine = entry[:, :-1], entry[:, 1:]
        ratio = (lengths[:, :-order] / lengths[:, order:]).unsqueeze(2)
        entry = fine + (fine - coarse) / (ratio - 1)
        moved_by = torch.maximum((entry - fine).abs(), (entry - coarse).abs())
        values.append(entry)
        bars.append(moved_by + noise[:, order:])
    value, bar = torch.cat(values, dim=1), torch.cat(bars, dim=1)
    bar = torch.where(torch.isfinite(bar), bar, torch.inf)
    best = bar.argmin(dim=1, keepdim=True)
    return Estimate(value=value.gather(1, best).squeeze(1), bar=bar.gather(1, best).squeeze(1))


def central(samples: Samples) -> Tensor:
    """Return (f(x+h) - f(x-h)) / 2h, (C, K, m)."""
    return (samples.plus - samples.minus) / (samples.forth + samples.back).unsqueeze(2)


def one_sided(sampled: Sampler, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return the difference quotients to the left and to the right of the point, each (C, K, m)."""
    left = (sampled.value - samples.minus) / samples.back.unsqueeze(2)
    right = (samples.plus - sampled.value) / samples.forth.unsqueeze(2)
    return left, right


def difference_noise(sampled: Sampler, noise: Noise, samples: Samples) -> Tensor:
    """Return what the forward's noise may change in a central difference, (C, K, m)."""
    unmoved = (samples.plus == sampled.value).all(dim=1) & (samples.minus == sampled.value).all(dim=1)
    level = torch.where(unmoved, noise.rounding, noise.level).unsqueeze(1)
    larger = torch.maximum(samples.plus.abs(), samples.minus.abs()).nan_to_num(0.0, 0.0, 0.0) * (_EPS / 2) + _TINY
    return NOISE_FACTOR * torch.maximum(level, larger) / samples.forth.unsqueeze(2)
