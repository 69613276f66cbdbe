"""The derivative of every output along one direction."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.line import on_line
from gradverify.core.function.noise import Noise
from gradverify.core.function.portion import portion
from gradverify.core.function.sampler import Sampler
from gradverify.core.numeric.richardson import DEPTH, extrapolated
from gradverify.core.numeric.samples import NOISE_FACTOR, Estimate


def slope(sampled: Sampler, noise: Noise, direction: Tensor, first: float) -> Estimate:
    """Return J·direction with its error bar, (m,), from three steps, the first of which is given; costs 6 forwards."""
    steps = [first * 0.5**k for k in range(DEPTH)]
    there = on_line(sampled, direction, [*steps, *(-step for step in steps)])
    wide = 2 * torch.tensor(steps, dtype=there.dtype, device=there.device).unsqueeze(1)
    value, bar = torch.empty_like(there[0]), torch.empty_like(there[0])
    width = portion(value)
    for start in range(0, len(value), width):
        some = slice(start, start + width)
        difference = (there[:DEPTH, some] - there[DEPTH:, some]).div_(wide).unsqueeze(0)
        found = extrapolated(difference, noise.level[some] * (NOISE_FACTOR / steps[-1]))
        value[some], bar[some] = found.value[0], found.bar[0]
    return Estimate(value=value, bar=bar)
