"""The cheap pass: three central differences per coordinate, extrapolated twice (Richardson)."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Estimate, Samples, Steps, central_differences
from gradverify.core.forward.length_scales import LengthScales, own_or_shared

DEPTH = 3  # number of steps
FIRST = 2.0**-7  # largest step, relative to the length scale
_CLOSER = 2.0**-15  # largest closer step, relative to the length: rounding then contributes about 1e-10 of f/x
_MIDDLE = 2.0**-6  # relative to the coordinate itself, so that no step reaches zero


def steps(lengths: LengthScales) -> Steps:
    """Return the steps of the cheap pass, each half the previous one."""
    return _halving(lengths.step * FIRST)


def closer_steps(lengths: LengthScales) -> Steps:
    """Return steps for functions that vary too quickly for `steps`: short even beside each coordinate's own length."""
    return _halving(own_or_shared(lengths) * _CLOSER)


def middle_steps(lengths: LengthScales) -> Steps:
    """Return steps between `steps` and `closer_steps`, for functions whose rounding dominates the closer ones."""
    return _halving(torch.minimum(lengths.step * (FIRST / 16), own_or_shared(lengths) * _MIDDLE))


def _halving(largest: Tensor) -> Steps:
    return Steps(base=largest, factors=0.5 ** torch.arange(DEPTH, dtype=torch.float64, device=largest.device))


def extrapolate(samples: Samples, noise: Tensor) -> Estimate:
    """Return the extrapolated derivatives; `noise` (C, m) bounds the noise of the finest difference."""
    return extrapolated(central_differences(samples), noise)


def extrapolated(difference: Tensor, noise: Tensor) -> Estimate:
    """Return the limit of the differences (C, 3, m) with its error bar: the last extrapolation's change, plus noise.

    If the two larger steps alone give a smaller bar, their extrapolation is returned: it contains half the noise. The
    bar is infinite where a difference is not finite.
    """
    once = torch.lerp(difference[:, :-1], difference[:, 1:], 4 / 3)
    larger, smaller = once.unbind(dim=1)
    value, change = torch.lerp(larger, smaller, 16 / 15), (larger - smaller).abs_()
    bar, coarse = torch.add(noise, change, alpha=1 / 15), change.add_(noise, alpha=0.5)
    value = torch.where(coarse < bar, larger, value)
    return Estimate(value=value, bar=torch.minimum(bar, coarse).nan_to_num_(torch.inf, torch.inf))
