"""Measurements that few verdicts need: stairs of low precision, and rounding on the way.

The module `noise` uses only the spacings that distinguish noise from variation. Stairs of rounding give the same noise
at large and small spacings, until all samples lie on one stair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.arithmetic.noisy import Measure, amplification
from gradverify.core.forward.noise import Noise, direction_of, noise_along, pooled, share_of
from gradverify.core.forward.sampler import Sampler, change_at
from gradverify.core.model.magnitudes import LengthScales
from gradverify.core.tuning import CLEARLY_ABOVE, CLEARLY_LESS, FEW, LOST_UNITS

_FLOAT32_STAIR = LOST_UNITS * torch.finfo(torch.float32).eps  # of the output: higher stairs are not those of float32
SPACINGS = tuple(2.0**-k for k in range(3, 20))  # times the length scale: spacings at which rounding may show


def with_stairs(noise: Noise, sampled: Sampler, lengths: LengthScales) -> Noise:
    """Return `noise` raised to the height of the stairs of a forward that rounds intermediate values.

    The stairs may be wider than the gaps between the samples of `measure`. If a smooth term is added to them, the
    output changes at any step, and on one stair only that term shows. What is higher than `highest_stairs` is a
    function that varies quickly, and what is far above the rounding of the low-precision values that torch has seen may
    be one, so that it is not counted as `rounding`.
    """
    sides = [noise_at_spacings(sampled, side * direction_of(lengths, 0)) for side in (1.0, -1.0)]
    rounding = sampled.value.new_tensor(CLEARLY_ABOVE * sampled.rounding_size())
    height, low = (_height(sampled, sides, most) for most in (highest_stairs(sampled), rounding))
    level = torch.maximum(noise.level, height)
    return replace(
        noise,
        level=level,
        upper_level=torch.maximum(noise.upper_level, height),
        persistent=noise.persistent | (height > 0),
        rounding=torch.maximum(noise.rounding, low),
        relative_level=torch.maximum(sampled.unit, share_of(sampled, level)),
    )


def highest_stairs(sampled: Sampler) -> Tensor:
    """Return the largest height of stairs from computing the forward, or parts of it, in a lower precision; (m,)."""
    return (_FLOAT32_STAIR * sampled.value.abs()).clamp(min=CLEARLY_ABOVE * sampled.rounding_size())


def _height(sampled: Sampler, sides: Sequence[Tensor], most: Tensor) -> Tensor:
    """Return the height of the stairs, at most `most`, from the noise (K, m) on each of two sides; (m,)."""
    forth, back = (_persistent(side, most) for side in sides)
    both = (forth > 0) & (back > 0)
    return pooled(sampled, torch.where(both, torch.minimum(forth, back), torch.maximum(forth, back)))


def _persistent(levels: Tensor, most: Tensor) -> Tensor:
    """Return the largest noise, up to `most`, that also shows at finer spacings; (m,).

    `levels` (K, m) is the noise at spacings that each halve the one before. A level is compared with the median of the
    next three, because a single estimate may be too small by chance.
    """
    levels = levels.nan_to_num(0.0, 0.0, 0.0)
    finer = levels.unfold(0, FEW, 1).median(dim=2).values[1:]
    levels = levels[: len(finer)]
    return torch.where((CLEARLY_LESS * levels <= finer) & (levels <= most), levels, 0.0).amax(dim=0)


def rounding_on_the_way(sampled: Sampler, measure: Measure = amplification) -> Tensor:
    """Return how far the rounding of intermediate results may move each output, by noisy arithmetic; (m,).

    Where terms cancel, as in the gradient of a saturated softmax, an output is inexact by that much, however smoothly
    its samples change. `measure` is `amplification`, or a bound on it.
    """
    change = torch.zeros_like(sampled.value)
    amplified = measure(lambda: change_at(sampled, sampled.point.clone(), torch.empty_like(change)), change)
    return amplified.mul_(2 * sampled.unit)


def noise_at_spacings(sampled: Sampler, direction: Tensor) -> Tensor:
    """Return the noise along `direction` at all `SPACINGS`; (K, m)."""
    return torch.stack([noise_along(sampled, direction * spacing) for spacing in SPACINGS])
