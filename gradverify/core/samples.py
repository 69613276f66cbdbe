"""The forward on both sides of the point, and the difference quotients that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.noise import Noise
from gradverify.core.sampler import Sampler, moved, representable

NOISE_FACTOR = 1.5  # by how much extrapolation amplifies the noise of a difference
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The forward on both sides of the point for C coordinates and K steps, coarse to fine."""

    columns: Tensor  # (C,) coordinate moved
    forth: Tensor  # (C, K) x + h - x, exactly; zero where the dtype cannot hold the step
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


def joined(coarse: Samples, fine: Samples) -> Samples:
    """Return the samples of the same columns at both sets of steps."""
    return Samples(
        columns=coarse.columns,
        forth=torch.cat([coarse.forth, fine.forth], dim=1),
        back=torch.cat([coarse.back, fine.back], dim=1),
        plus=torch.cat([coarse.plus, fine.plus], dim=1),
        minus=torch.cat([coarse.minus, fine.minus], dim=1),
    )


def of_rows(samples: Samples, rows: Tensor) -> Samples:
    """Return the samples of some of the columns."""
    return Samples(
        columns=samples.columns[rows],
        forth=samples.forth[rows],
        back=samples.back[rows],
        plus=samples.plus[rows],
        minus=samples.minus[rows],
    )


def void(samples: Samples) -> Tensor:
    """Tell which steps vanish in the input's own dtype, so that nothing was sampled; (C, K, 1)."""
    return ((samples.forth <= 0) | (samples.back <= 0)).unsqueeze(2)


def central(samples: Samples) -> Tensor:
    """Return (f(x+h) - f(x-h)) / 2h, (C, K, m)."""
    return (samples.plus - samples.minus) / (samples.forth + samples.back).unsqueeze(2)


def one_sided(sampled: Sampler, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return the difference quotients to the left and to the right of the point, each (C, K, m)."""
    left = (sampled.value - samples.minus) / samples.back.unsqueeze(2)
    right = (samples.plus - sampled.value) / samples.forth.unsqueeze(2)
    return left, right


def unmoved(sampled: Sampler, samples: Samples) -> Tensor:
    """Tell where the forward is bit for bit the same on both sides of the point; (C, K, m)."""
    return (samples.plus == sampled.value) & (samples.minus == sampled.value)


def difference_noise(sampled: Sampler, noise: Noise, samples: Samples) -> Tensor:
    """Return what the forward's noise may change in a central difference, (C, K, m)."""
    still = unmoved(sampled, samples).all(dim=1)
    level = torch.where(still, noise.rounding, noise.level).unsqueeze(1)
    larger = torch.maximum(samples.plus.abs(), samples.minus.abs()).nan_to_num(0.0, 0.0, 0.0) * sampled.unit + _TINY
    return NOISE_FACTOR * torch.maximum(level, larger) / samples.forth.unsqueeze(2)
