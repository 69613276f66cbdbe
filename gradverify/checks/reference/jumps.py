"""Entries at which a reference jumps: ties, and numbers on the edge between two that a result is rounded to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.arithmetic.noisy import NOISE_EPS
from gradverify.checks.reference.finiteness import Sample
from gradverify.checks.reference.magnitudes import largest_of

_EPS64, _EPS32 = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps
_UNLIKE = 2.0**12  # ratio of two changes, each by its noise, of which at least one is a jump
_VISIBLE = 2.0**-28  # of the size of the tensors: larger changes are no rounding of float64, unless it is amplified


def sample_of(
    value: Tensor,
    exact: Tensor,
    noisy: Sequence[Tensor],
    jittered: Tensor,
    nudged: Sequence[Tensor],
    like: Tensor,
    size: float,
) -> Sample:
    """Return what was computed of one tensor, with the changes by noise relative to the noise; all (n,).

    `noisy` is the reference in noisy arithmetic, `jittered` at inputs moved by the rounding of float64. Both changes
    are in proportion to the noise, which differs by 2^16, unless the reference jumps: where two inputs are equal, the
    gradient of |x - y| is 0, 1 or -1. What jumps says nothing of how rounding is amplified in other entries. A jump is
    no rounding of terms of the `size` of other tensors, which is what a gradient may consist of that is zero anywhere.
    """
    by_noise, by_jitter = torch.stack(tuple(noisy)) - exact, jittered - exact
    noise, jitter = by_noise / NOISE_EPS, by_jitter / _EPS64
    largest = by_noise.abs().amax(dim=0)
    more = torch.maximum(largest / NOISE_EPS, jitter.abs())
    less = torch.minimum(largest / NOISE_EPS, jitter.abs())
    change = torch.maximum(largest, by_jitter.abs())
    jumps = (more > _UNLIKE * less) & (change > _VISIBLE * size) & more.isfinite()
    jumps &= more * _EPS32 > largest_of(exact.nan_to_num(0.0, 0.0, 0.0))
    jump = torch.stack([change, *((near - exact).abs() for near in nudged)]).amax(dim=0)
    return Sample(
        value=value,
        exact=exact,
        nudged=tuple(nudged),
        noisy=tuple(noise.masked_fill(jumps, 0.0)),
        jittered=jitter.masked_fill(jumps, 0.0),
        jump=torch.where(jumps, jump, 0.0),
        like=like,
    )
