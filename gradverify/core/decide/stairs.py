"""Stairs of a quantised forward: larger steps show the claim, while the finest ones lie within one stair."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.samples import Samples
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import halving_steps
from gradverify.core.forward.noise import direction_of
from gradverify.core.forward.sampler import magnitudes, outputs_near
from gradverify.core.forward.step_noise import SPACINGS, noise_at_spacings
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.limits import chunks
from gradverify.core.model.magnitudes import any_set
from gradverify.core.tuning import ALIKE, CLEARLY_LESS, FEW

_HIGHEST_STAIR = 2.0**-4  # of the largest magnitude in the output's tensor: no precision in use has higher stairs
_DISTANCES = (0.3, 1.0, 3.0, 6.0)  # distances on either side, in length scales, at which the output should be constant


def excuse_stairs(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Make mismatches undetermined if the point lies on a stair and larger steps agree with the claim.

    The output is constant on the stair and everywhere around, and the noise of its tensor is that of stairs.
    """
    claimed = context.claimed[chosen]
    constant = (judged.code == Code.MISMATCH) & claimed.isfinite() & (claimed != 0)
    constant &= judged.numeric.abs() <= judged.bar
    constant &= _flat_all_around(context, constant.any(dim=0))
    height = _stair_heights(context) if any_set(constant) else torch.zeros_like(context.sampled.value)
    constant &= height > 0
    steps, on_stair = halving_steps(context.lengths), torch.zeros_like(constant)
    for rows in chunks(constant.any(dim=1).nonzero().squeeze(1), 2 * len(steps.factors) * context.numbers_per_sample):
        samples = sample(context.sampled, context.column_groups, chosen[rows], steps)
        on_stair[rows] = constant[rows] & _agrees_up_to_stairs(samples, claimed[rows], height)
    bar = torch.where(on_stair, torch.maximum(judged.bar, judged.error), judged.bar)
    return decide(judged, [(on_stair, Reason.STAIRS_INSIDE)], bar=bar)


def _agrees_up_to_stairs(samples: Samples, claimed: Tensor, height: Tensor) -> Tensor:
    """Mask of claims that some step agrees with, up to some heights (m,) of a stair; (C, m)."""
    difference = samples.difference
    change = torch.cat([torch.zeros_like(difference[:, :1]), difference.diff(dim=1).abs()], dim=1)
    slack = ALIKE * height / samples.forth + change
    return ((claimed.unsqueeze(1) - difference).abs() <= slack).any(dim=1)


def _flat_all_around(context: JudgingContext, outputs: Tensor) -> Tensor:
    """Mask of those of the outputs (m,) that are constant over small steps at all distances tried; (m,).

    Beyond a dead zone, a clamp or a jump an output changes at small steps, and a ripple changes everywhere.
    """
    generator = torch.Generator().manual_seed(0)
    small = SPACINGS[-1] * random_magnitudes(context.lengths.shared, generator)
    longer = _HIGHEST_STAIR * random_magnitudes(context.lengths.shared, generator)
    flat, rises = outputs.clone(), []
    for distance in _DISTANCES:
        offset = distance * random_magnitudes(context.lengths.shared, generator)
        for displacement in (offset, -offset):
            if not any_set(flat):
                return flat
            here = outputs_near(context.sampled, displacement)
            flat &= here == outputs_near(context.sampled, displacement + small)
            rises.append((outputs_near(context.sampled, displacement + longer) - here).abs())
    every = torch.stack(rises)  # multiples of the stair height
    largest_inverse = torch.where(every > 0, every, torch.inf).amin(dim=0).reciprocal()
    return flat & (magnitudes(context.sampled, largest_inverse).reciprocal() <= _HIGHEST_STAIR * context.sampled.size)


def _stair_heights(context: JudgingContext) -> Tensor:
    """Return the height of each output's stairs, (m,); 0 if the noise of its tensor is not that of stairs."""
    noise = noise_at_spacings(context.sampled, direction_of(context.lengths, 0)).nan_to_num(0.0)
    runs = torch.stack([magnitudes(context.sampled, level) for level in noise]).unfold(0, FEW + 1, 1)
    steady = (CLEARLY_LESS * runs.amax(dim=2) <= runs.amin(dim=2)) & (runs.amin(dim=2) > 0)
    return torch.where(steady, runs.amax(dim=2), 0.0).amax(dim=0)
