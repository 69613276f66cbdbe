"""What other steps show: stairs of a quantised forward, and kinks that the curvature of the function hides.

On a stair, larger steps agree with backward while the finest ones lie within one stair of rounding.

At a hidden kink, such as a small weight times the absolute value of an input, central differences converge to the mean
of the two slopes with a small error bar. One-sided differences show it: from two disjoint sets of steps they
extrapolate to the same two slopes, and the claim lies between them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.decide.context import COLUMNS_EXAMINED, ExcuseContext, JudgingContext, focused
from gradverify.core.decide.ladder import DEPTH
from gradverify.core.decide.verdict import Code, Judged, Reason, decide, span
from gradverify.core.estimate.samples import (
    BAR_FACTOR,
    Samples,
    Steps,
    central_differences,
    difference_noise,
    finite_to_finest,
    is_vanished,
    one_sided_quotients,
    set_to_finest,
)
from gradverify.core.estimate.smoothness import LOW
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, every_second, halving_steps, steps_down_to, tableau
from gradverify.core.forward.noise import MAX_FALL
from gradverify.core.forward.sampler import Sampler, magnitudes, outputs_near
from gradverify.core.forward.step_noise import RUN, SMALL_STEP, SPACINGS, noise_at
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.limits import LARGEST
from gradverify.core.model.magnitudes import any_set
from gradverify.core.tuning import LOST_UNITS, SMALL_PART

_WIDEST = 1e-3  # of the larger slope: greatest gap between the slopes of a hidden kink, and so greatest error
_ALIKE = 1e-3  # of |claim - finest difference|: differences this near the finest one lie on the same stair
_STEPS_ON_STAIR = 3  # steps on the stair, at least
_LONGEST, _SHORTEST = 2, 35  # exponents of 1/2: steps relative to the largest
_HIGHEST_STAIR = 2.0**-4  # of the largest magnitude in the output's tensor: no precision in use has higher stairs
_DISTANCES = (0.3, 1.0, 3.0, 6.0)  # distances on either side, in length scales, at which the output should be constant
_HEIGHTS = 4.0  # heights of a stair: error of a difference of two samples


def excuse_slight(trial: ExcuseContext, judged: Judged) -> Judged:
    """Turn mismatches into kinks if the claim lies between two slightly different one-sided slopes."""
    context, chosen = trial.context, trial.chosen
    claimed = context.claimed[chosen]
    accused = (judged.code == Code.MISMATCH) & ~judged.kinked
    accused &= judged.error <= _WIDEST * torch.maximum(claimed.abs(), judged.numeric.abs())
    rows, outputs = span(accused)
    rows = rows[: min(COLUMNS_EXAMINED, LARGEST // (DEPTH * context.numbers_per_sample))]
    if not len(rows):
        return judged
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    claims, numeric = claimed[place], judged.numeric[place]
    near = focused(context, outputs)
    left, right, bar = _slopes(near, chosen[rows], 0)
    gap, middle = (right - left).abs(), (left + right) / 2
    clear = (gap > BAR_FACTOR * bar) & (gap <= _WIDEST * torch.maximum(left.abs(), right.abs()))
    slack = SMALL_PART * gap
    between = clear & ((claims - middle).abs() <= gap / 2 + slack) & ((numeric - middle).abs() <= slack)
    between &= accused[place]
    if not any_set(between):
        return judged
    again_left, again_right, again_bar = _slopes(near, chosen[rows], 1)
    between &= torch.minimum(gap, (again_right - again_left).abs()) > BAR_FACTOR * torch.maximum(bar, again_bar)
    between &= ((right - left) - (again_right - again_left)).abs() <= slack
    excused = torch.zeros_like(accused)
    excused[place] = between
    return decide(
        judged,
        [(excused, Reason.SMALL_KINK)],
        kinked=judged.kinked | excused,
        numeric=torch.where(excused, claimed, judged.numeric),
        error=judged.error.masked_fill(excused, 0.0),
    )


def excuse_average(trial: ExcuseContext, judged: Judged) -> Judged:
    """Make mismatches at order 2 undetermined if only the finest steps show them and larger steps agree."""
    context, accused = trial.context, judged.code == Code.MISMATCH
    if context.sampled.problem.order == 1:
        return judged
    rows, outputs = span(accused)
    rows = rows[: min(COLUMNS_EXAMINED, LARGEST // (2 * len(_steps(context).factors) * context.numbers_per_sample))]
    if not len(rows):
        return judged
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    steps = _steps(context)
    near = focused(context, outputs)
    samples = sample(near.sampled, near.column_groups, trial.chosen[rows], steps)
    excused = torch.zeros_like(accused)
    excused[place] = accused[place] & _agrees_with_larger_steps(near.sampled, samples, near.claimed[trial.chosen[rows]])
    if not any_set(excused):
        return judged
    bar = torch.where(excused, torch.maximum(judged.bar, judged.error), judged.bar)
    return decide(judged, [(excused, Reason.LARGER_STEPS_AGREE)], bar=bar)


def excuse_flights(trial: ExcuseContext, judged: Judged) -> Judged:
    """Make nonzero claims undetermined if the output lies on a stair of rounding and a larger step agrees."""
    context, chosen = trial.context, trial.chosen
    claimed = context.claimed[chosen]
    accused = (judged.code == Code.MISMATCH) & (claimed != 0) & (judged.numeric.abs() <= judged.bar)
    if not any_set(accused):
        return judged
    height = torch.where(_flat_all_around(context), _stair_heights(context), 0.0)
    accused &= height > 0
    rows = accused.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return judged
    samples = sample(context.sampled, context.column_groups, chosen[rows], halving_steps(context.lengths))
    difference = central_differences(samples)
    change = torch.cat([torch.zeros_like(difference[:, :1]), difference.diff(dim=1).abs()], dim=1)
    slack = _HEIGHTS * height / samples.forth + change
    agrees = ((claimed[rows].unsqueeze(1) - difference).abs() <= slack).any(dim=1)
    undetermined = torch.zeros_like(accused)
    undetermined[rows] = accused[rows] & agrees
    return decide(
        judged, [(undetermined, Reason.STAIRS_INSIDE)], bar=torch.where(undetermined, judged.error, judged.bar)
    )


def _slopes(context: JudgingContext, chosen: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slopes to the left and to the right, and the sum of their bars; each (C, m).

    They come from every second step of the coarse ladder, from the one numbered `first`.
    """
    steps = every_second(coarse_steps(context.lengths), first)
    samples = sample(context.sampled, context.column_groups, chosen, steps)
    level, vanished = 2 * difference_noise(context.noise, samples), is_vanished(samples)
    left, right = (
        tableau(quotient, level, finite_to_finest(quotient, vanished), lengths)
        for quotient, lengths in zip(
            one_sided_quotients(context.sampled, samples), (samples.back, samples.forth), strict=True
        )
    )
    return left.value, right.value, left.bar + right.bar


def _steps(context: JudgingContext) -> Steps:
    """Return the steps of the ladder without the longest: their outputs are known."""
    steps = steps_down_to(context.lengths, _SHORTEST)
    steps = every_second(steps, 0) if context.sparse else steps
    return replace(steps, factors=steps.factors[steps.factors <= 0.5**_LONGEST])


def _agrees_with_larger_steps(sampled: Sampler, samples: Samples, claimed: Tensor) -> Tensor:
    """Mask of claims that two consecutive larger steps agree with, while the finest lie on one stair; (C, m)."""
    difference, vanished, size = central_differences(samples), is_vanished(samples), sampled.value.abs()
    numeric = difference[:, -1]
    error = (claimed - numeric).abs().unsqueeze(1)
    agrees = ((difference - claimed.unsqueeze(1)).abs() <= SMALL_PART * error) & ~vanished
    change = (difference - numeric.unsqueeze(1)).abs()
    alike = change <= _ALIKE * error + LOST_UNITS * sampled.unit * size / samples.forth
    stair = set_to_finest(alike | vanished) & ~vanished
    next_above = torch.cat([stair[:, 1:] & ~stair[:, :-1], torch.zeros_like(stair[:, :1])], dim=1)
    sudden = (next_above & (change >= SMALL_PART * error)).any(dim=1) & (stair.sum(dim=1) >= _STEPS_ON_STAIR)
    height = torch.where(stair, samples.forth, 0.0).amax(dim=1) * error.squeeze(1)
    return sudden & (agrees[:, 1:] & agrees[:, :-1]).any(dim=1) & (height <= LOW * size)


def _flat_all_around(context: JudgingContext) -> Tensor:
    """Mask of outputs that are constant over small steps at all distances tried; (m,).

    Beyond a dead zone, a clamp or a jump an output changes at small steps, and a ripple changes everywhere.
    """
    generator = torch.Generator().manual_seed(0)
    small = SMALL_STEP * random_magnitudes(context.lengths.shared, generator)
    longer = _HIGHEST_STAIR * random_magnitudes(context.lengths.shared, generator)
    changes, rises = torch.zeros_like(context.sampled.value, dtype=torch.bool), []
    for distance in _DISTANCES:
        offset = distance * random_magnitudes(context.lengths.shared, generator)
        for displacement in (offset, -offset):
            here = outputs_near(context.sampled, displacement)
            changes |= here != outputs_near(context.sampled, displacement + small)
            rises.append((outputs_near(context.sampled, displacement + longer) - here).abs())
    return ~changes & (_least_rise(context, torch.stack(rises)) <= _HIGHEST_STAIR * context.sampled.size)


def _least_rise(context: JudgingContext, rises: Tensor) -> Tensor:
    """Return the least nonzero change (N, m) in each output's tensor, (m,): all are multiples of the stair height."""
    largest_inverse = torch.where(rises > 0, rises, torch.inf).amin(dim=0).reciprocal()
    return magnitudes(context.sampled, largest_inverse).reciprocal()


def _stair_heights(context: JudgingContext) -> Tensor:
    """Return the height of each output's stairs, (m,); 0 if the noise of its tensor is not that of stairs."""
    noise = [magnitudes(context.sampled, noise_at(context.sampled, context.lengths, spacing)) for spacing in SPACINGS]
    runs = torch.stack(noise).unfold(0, RUN + 1, 1)  # (runs, m, RUN + 1)
    steady = (runs.amax(dim=2) <= MAX_FALL * runs.amin(dim=2)) & (runs.amin(dim=2) > 0)
    height = torch.where(steady, runs.amax(dim=2), 0.0).amax(dim=0)
    return torch.where(height <= _HIGHEST_STAIR * context.sampled.size, height, 0.0)
