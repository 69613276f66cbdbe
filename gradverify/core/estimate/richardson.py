"""The cheap pass: three central differences per coordinate, extrapolated twice (Richardson)."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Estimate, Samples, Steps, central
from gradverify.core.forward.length_scales import LengthScales, own_or_shared

DEPTH = 3  # steps taken
FIRST = 2.0**-7  # the largest of them, relative to the length scale
_CLOSER = 2.0**-15  # and where the function varies on a shorter length: rounding then leaves 1e-10 of f/x
_MIDDLE = 2.0**-6  # still on this side of what happens at zero


def steps(lengths: LengthScales) -> Steps:
    """Return the steps of the cheap pass, each half the one before."""
    return _halving(lengths.step * FIRST)


def closer_steps(lengths: LengthScales) -> Steps:
    """Return steps close to the point even beside each input's own length, where those of `steps` were too long."""
    return _halving(own_or_shared(lengths) * _CLOSER)


def middle_steps(lengths: LengthScales) -> Steps:
    """Return steps between the two, for where rounding drowns the closer ones."""
    return _halving(torch.minimum(lengths.step * (FIRST / 16), own_or_shared(lengths) * _MIDDLE))


def _halving(largest: Tensor) -> Steps:
    return Steps(base=largest, factors=0.5 ** torch.arange(DEPTH, dtype=torch.float64, device=largest.device))


def extrapolate(samples: Samples, noise: Tensor) -> Estimate:
    """Return the extrapolated derivatives, where `noise` (C, m) is what it may change in the finest difference."""
    return extrapolated(central(samples), noise)


def extrapolated(difference: Tensor, noise: Tensor) -> Estimate:
    """Return what differences (C, 3, m) tend to; the bar is how far the last extrapolation moved it, plus noise.

    Where the noise outweighs that by far, the two larger steps alone say more: of them it spoils half as much. The bar
    is infinite where a difference is none.
    """
    once = torch.lerp(difference[:, :-1], difference[:, 1:], 4 / 3)
    larger, smaller = once.unbind(dim=1)
    value, apart = torch.lerp(larger, smaller, 16 / 15), (larger - smaller).abs_()
    bar, coarse = torch.add(noise, apart, alpha=1 / 15), apart.add_(noise, alpha=0.5)
    value = torch.where(coarse < bar, larger, value)
    return Estimate(value=value, bar=torch.minimum(bar, coarse).nan_to_num_(torch.inf, torch.inf))
