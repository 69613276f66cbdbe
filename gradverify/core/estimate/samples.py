"""Outputs on both sides of the point, and their difference quotients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import TINY, suffix_minimum

BAR_FACTOR = 10.0  # an error counts if it exceeds this many error bars
NOISE_FACTOR = 1.5  # times the noise of a difference: what extrapolation makes of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """K steps for each of n coordinates: base times factor, coarse to fine."""

    base: Tensor  # (n,)
    factors: Tensor  # (K,)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Outputs at the point and on both sides of it, for C groups and K steps, coarse to fine."""

    chosen: Tensor  # (C,) index of each group
    value: Tensor  # (m,) outputs at the point
    forth: Tensor  # (C, K, 1 or m) x + h - x of the entry's column, exactly; zero where its dtype cannot hold the step
    back: Tensor  # (C, K, 1 or m) x - (x - h), exactly
    plus: Tensor  # (C, K, m)
    minus: Tensor  # (C, K, m)

    @cached_property
    def vanished(self) -> Tensor:
        """Mask of steps that vanish in the input's own dtype, so that nothing was sampled; (C, K, 1 or m)."""
        return (self.forth <= 0) | (self.back <= 0)

    @cached_property
    def difference(self) -> Tensor:
        """Central differences (f(x+h) - f(x-h)) / 2h, (C, K, m)."""
        return (self.plus - self.minus) / (self.forth + self.back)

    @cached_property
    def changes(self) -> tuple[Tensor, Tensor]:
        """Changes of the outputs up to the point, f(x) - f(x-h), and from it, f(x+h) - f(x); each (C, K, m)."""
        return self.value - self.minus, self.plus - self.value

    @cached_property
    def quotients(self) -> tuple[Tensor, Tensor]:
        """Difference quotients to the left and to the right of the point, each (C, K, m)."""
        left, right = self.changes
        return left / self.back, right / self.forth

    @cached_property
    def largest_change(self) -> Tensor:
        """The larger of the changes of the output to either side, at each step; (C, K, m)."""
        left, right = self.changes
        return torch.maximum(left.abs(), right.abs())

    @cached_property
    def unchanged(self) -> Tensor:
        """Mask of outputs on both sides that are bitwise equal to those at the point; (C, K, m)."""
        return (self.plus == self.value) & (self.minus == self.value)

    @cached_property
    def constant_tail(self) -> Tensor:
        """Mask of the finest steps at which the output is unchanged, without steps that vanished; (C, K, m)."""
        return set_to_finest(self.unchanged | self.vanished) & ~self.vanished


_BY_STEP = ("forth", "back", "plus", "minus")  # fields with a dimension of steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Derivatives with their error bars, each (C, m); the bar is infinite where the derivative is unknown."""

    value: Tensor
    bar: Tensor


def sharpest(estimates: Sequence[Estimate]) -> Estimate:
    """Return for each entry the estimate with the smallest error bar."""
    values, bars = torch.stack([each.value for each in estimates]), torch.stack([each.bar for each in estimates])
    best = bars.argmin(dim=0, keepdim=True)
    return Estimate(value=values.gather(0, best).squeeze(0), bar=bars.gather(0, best).squeeze(0))


def joined(coarse: Samples, fine: Samples) -> Samples:
    """Return the samples of the same groups at both sets of steps."""
    return replace(
        coarse, **{name: torch.cat([getattr(coarse, name), getattr(fine, name)], dim=1) for name in _BY_STEP}
    )


def of_rows(samples: Samples, rows: Tensor) -> Samples:
    """Return the samples of some of the groups."""
    return replace(samples, chosen=samples.chosen[rows], **{name: getattr(samples, name)[rows] for name in _BY_STEP})


def of_steps(samples: Samples, steps: slice) -> Samples:
    """Return the samples at some of the steps."""
    return replace(samples, **{name: getattr(samples, name)[:, steps] for name in _BY_STEP})


def finite_to_finest(quotient: Tensor, vanished: Tensor) -> Tensor:
    """Mask of quotients that are finite, as are all at finer steps, ignoring steps that vanished; (C, K, m)."""
    return set_to_finest(torch.isfinite(quotient) | vanished) & ~vanished


def set_to_finest(flags: Tensor) -> Tensor:
    """True where this step and all finer ones are flagged; (C, K, m)."""
    return suffix_minimum(flags.to(torch.int8)).bool()


def input_rounding_noise(sampled: Sampler, samples: Samples, own: Tensor) -> Tensor:
    """Return how much rounding of a multiple of the input may change its central differences, (C, K, m).

    `own` (C, 1 or m) is the magnitude of the input. At the finest steps this rounding grows by the same amount from
    sample to sample and does not show as noise: the computed 1000 x rises by 1024 ulps of x, not 1000, for many
    successive x.
    """
    return NOISE_FACTOR * sampled.unit * own.unsqueeze(1) * samples.difference.abs() / samples.forth


def difference_noise(noise: Noise, samples: Samples) -> Tensor:
    """Return how much noise of the forward may change a central difference, (C, K, m)."""
    larger = (
        torch.maximum(samples.plus.abs(), samples.minus.abs()).nan_to_num(0.0, 0.0, 0.0) * noise.relative_level + TINY
    )
    return NOISE_FACTOR * torch.maximum(noise.level, larger) / samples.forth
