"""The forward on both sides of the point, and the difference quotients that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import suffix_minimum

BAR_FACTOR = 10.0  # an error counts from this many error bars on
NOISE_FACTOR = 1.5  # by how much extrapolation amplifies the noise of a difference
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """K steps for each of n coordinates: base times factor, coarse to fine."""

    base: Tensor  # (n,)
    factors: Tensor  # (K,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The forward on both sides of the point for C moves and K steps, coarse to fine."""

    chosen: Tensor  # (C,) which moves
    forth: (
        Tensor  # (C, K, 1 or m) x + h - x of the coordinate moved, exactly; zero where its dtype cannot hold the step
    )
    back: Tensor  # (C, K, 1 or m) x - (x - h), exactly
    plus: Tensor  # (C, K, m)
    minus: Tensor  # (C, K, m)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Derivatives with their error bars, each (C, m); the bar is infinite where nothing could be said."""

    value: Tensor
    bar: Tensor


def joined(coarse: Samples, fine: Samples) -> Samples:
    """Return the samples of the same moves at both sets of steps."""
    return Samples(
        chosen=coarse.chosen,
        forth=torch.cat([coarse.forth, fine.forth], dim=1),
        back=torch.cat([coarse.back, fine.back], dim=1),
        plus=torch.cat([coarse.plus, fine.plus], dim=1),
        minus=torch.cat([coarse.minus, fine.minus], dim=1),
    )


def of_rows(samples: Samples, rows: Tensor) -> Samples:
    """Return the samples of some of the moves."""
    return Samples(
        chosen=samples.chosen[rows],
        forth=samples.forth[rows],
        back=samples.back[rows],
        plus=samples.plus[rows],
        minus=samples.minus[rows],
    )


def finest(samples: Samples, count: int) -> Samples:
    """Return the samples at the last, finest steps only."""
    some = slice(-count, None)
    return Samples(
        chosen=samples.chosen,
        forth=samples.forth[:, some],
        back=samples.back[:, some],
        plus=samples.plus[:, some],
        minus=samples.minus[:, some],
    )


def void(samples: Samples) -> Tensor:
    """Tell which steps vanish in the input's own dtype, so that nothing was sampled; (C, K, 1 or m)."""
    return (samples.forth <= 0) | (samples.back <= 0)


def trusted(quotient: Tensor, nothing: Tensor) -> Tensor:
    """Tell which steps give a number, and all finer ones too, those aside that vanish (`nothing`); (C, K, m)."""
    return to_the_end(torch.isfinite(quotient) | nothing) & ~nothing


def central(samples: Samples) -> Tensor:
    """Return (f(x+h) - f(x-h)) / 2h, (C, K, m)."""
    return (samples.plus - samples.minus) / (samples.forth + samples.back)


def one_sided(sampled: Sampler, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return the difference quotients to the left and to the right of the point, each (C, K, m)."""
    left = (sampled.value - samples.minus) / samples.back
    right = (samples.plus - sampled.value) / samples.forth
    return left, right


def unmoved(sampled: Sampler, samples: Samples) -> Tensor:
    """Tell where the forward is bit for bit the same on both sides of the point; (C, K, m)."""
    return (samples.plus == sampled.value) & (samples.minus == sampled.value)


def to_the_end(flags: Tensor) -> Tensor:
    """Mark the steps from which on all finer ones are flagged; (C, K, m) bool."""
    return suffix_minimum(flags.to(torch.int8)).bool()


def finest_noise(noise: Noise, samples: Samples) -> Tensor:
    """Return what the forward's noise may change in the difference at the finest step, (C, m).

    It goes by the samples farthest off, in case they are larger. Not a number or infinite where these are, or where the
    step vanishes.
    """
    larger = torch.maximum(samples.plus[:, 0].abs(), samples.minus[:, 0].abs()).mul_(noise.share)
    return torch.maximum(larger, noise.level, out=larger).mul_(NOISE_FACTOR).div_(samples.forth[:, -1])


def rounded_on_the_way(sampled: Sampler, samples: Samples, difference: Tensor, own: Tensor) -> Tensor:
    """Return what rounding of a multiple of the input itself may change in its central differences, (C, K, m).

    `own` (C, 1 or m) is the input's magnitude. At the finest steps such rounding goes up by the same from one sample to
    the next, so that nobody hears it: 1000 x takes steps of 1024 for as many ulps of x as there are between two powers.
    """
    return NOISE_FACTOR * sampled.unit * own.unsqueeze(1) * difference.abs() / samples.forth


def difference_noise(noise: Noise, samples: Samples) -> Tensor:
    """Return what the forward's noise may change in a central difference, (C, K, m)."""
    larger = torch.maximum(samples.plus.abs(), samples.minus.abs()).nan_to_num(0.0, 0.0, 0.0) * noise.share + _TINY
    return NOISE_FACTOR * torch.maximum(noise.level, larger) / samples.forth
