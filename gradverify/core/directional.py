"""The derivative of every output along one direction."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.noise import Noise
from gradverify.core.richardson import DEPTH
from gradverify.core.sampler import Sampler
from gradverify.core.samples import NOISE_FACTOR, Estimate
from gradverify.core.together import lined_up


def slope(sampled: Sampler, noise: Noise, direction: Tensor, first: float) -> Estimate:
    """Return J·direction with its error bar, (m,), from three steps, the first of which is given; costs 6 forwards."""
    steps = [first * 0.5**k for k in range(DEPTH)]
    there = lined_up(sampled, direction, [sign * step for step in steps for sign in (1, -1)])
    values = [(there[2 * k] - there[2 * k + 1]) / (2 * step) for k, step in enumerate(steps)]
    once, twice = ((4 * values[k + 1] - values[k]) / 3 for k in range(2))
    value = (16 * twice - once) / 15
    bar = (value - twice).abs() + NOISE_FACTOR * noise.level / steps[-1]
    return Estimate(value=value, bar=torch.where(torch.isfinite(bar), bar, torch.inf))
