"""The cheap pass: three central differences per coordinate, extrapolated twice (Richardson)."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.noise import Noise
from gradverify.core.sampler import Sampler
from gradverify.core.samples import Estimate, Samples, Steps, central, difference_noise, finest

DEPTH = 3  # steps taken
_FIRST = 2.0**-7  # the largest of them, relative to the length scale


def steps(lengths: Tensor) -> Steps:
    """Return the steps of the cheap pass, each half the one before, from length scales (n,)."""
    return Steps(base=lengths * _FIRST, factors=0.5 ** torch.arange(DEPTH, dtype=torch.float64, device=lengths.device))


def extrapolate(sampled: Sampler, noise: Noise, samples: Samples) -> Estimate:
    """Return the extrapolated derivatives; the bar is how far the last extrapolation moved the value, plus noise."""
    difference = central(samples)
    first = (4 * difference[:, 1] - difference[:, 0]) / 3
    second = (4 * difference[:, 2] - difference[:, 1]) / 3
    value = (16 * second - first) / 15
    bar = (value - second).abs() + difference_noise(sampled, noise, finest(samples, 1))[:, 0]
    return Estimate(value=value, bar=torch.where(torch.isfinite(bar), bar, torch.inf))
