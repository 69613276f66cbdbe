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
    Samples,
    difference_noise,
    finite_to_finest,
    is_vanished,
    one_sided_quotients,
)
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, tableau
from gradverify.core.excuses.context import COLUMNS_EXAMINED, ExcuseContext
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
    left, right, certain = _both_slopes(near, chosen[rows])
    low, high, middle = torch.minimum(left, right), torch.maximum(left, right), (left + right) / 2
    slack = SMALL_PART * (high - low)
    certain &= high - low <= _WIDEST * torch.maximum(low.abs(), high.abs())
    between = (claims >= low - slack) & (claims <= high + slack) & certain & ((numeric - middle).abs() <= slack)
    between &= accused[place]
    excused = torch.zeros_like(accused)
    excused[place] = between
    return decide(
        judged,
        [(excused, Reason.SMALL_KINK)],
        kinked=judged.kinked | excused,
        numeric=torch.where(excused, claimed, judged.numeric),
        error=judged.error.masked_fill(excused, 0.0),
    )


def _both_slopes(context: JudgingContext, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slopes to the left and to the right, and the mask of those certain to differ; each (C, m)."""
    samples = sample(context.sampled, context.column_groups, chosen, coarse_steps(context.lengths))
    results = [_extrapolated_slopes(context, samples, slice(first, None, 2)) for first in (0, 1)]
    (left, right, bar), (again_left, again_right, again_bar) = results
    gap, again = right - left, again_right - again_left
    clear = torch.minimum(gap.abs(), again.abs()) > BAR_FACTOR * torch.maximum(bar, again_bar)
    return left, right, clear & ((gap - again).abs() <= SMALL_PART * torch.minimum(gap.abs(), again.abs()))


def _extrapolated_slopes(context: JudgingContext, samples: Samples, rungs: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slopes to the left and to the right from some of the rungs, and the sum of their bars; each (C, m)."""
    level, vanished = difference_noise(context.noise, samples), is_vanished(samples)
    slopes = []
    for quotient, steps in zip(
        one_sided_quotients(context.sampled, samples), (samples.back, samples.forth), strict=True
    ):
        usable = finite_to_finest(quotient, vanished)[:, rungs]
        slopes.append(tableau(quotient[:, rungs], 2 * level[:, rungs], usable, steps[:, rungs]))
    left, right = slopes
    return left.value, right.value, left.bar + right.bar
