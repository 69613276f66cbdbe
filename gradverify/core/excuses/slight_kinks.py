"""Kinks that the curvature of the function hides, for example a small weight times the absolute value of an input.

There, central differences converge to the mean of the two slopes with a small error bar. One-sided differences show the
kink: from two disjoint sets of steps they extrapolate to the same two slopes, and the claim lies between them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.ladder import DEPTH
from gradverify.core.decide.verdict import Code, Judged, Reason, decide, span
from gradverify.core.estimate.samples import (
    BAR_FACTOR,
    difference_noise,
    finite_to_finest,
    is_vanished,
    one_sided_quotients,
)
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, every_second, tableau
from gradverify.core.excuses.context import COLUMNS_EXAMINED, ExcuseContext
from gradverify.core.model.magnitudes import any_set
from gradverify.core.model.memory import LARGEST
from gradverify.core.tuning import SMALL_PART

_WIDEST = 1e-3  # of the larger slope: greatest gap between the slopes of a hidden kink, and so greatest error


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
