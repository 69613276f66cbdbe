"""Kinks so slight that the curvature of the function hides them: a small weight times the absolute value of an input.

Central differences end up in the middle of the two slopes there, and say so with the smallest of bars, since what bends
on the way bends much more. The differences to one side tell them apart: by two sets of steps, which know nothing of
each other, both extrapolate to the same two slopes, and the accused value lies between them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.verdict import Code, Judged, Reason, decide, span
from gradverify.core.estimate.samples import BAR_FACTOR, Samples, difference_noise, one_sided, trusted, void
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, tableau
from gradverify.core.excuses.trial import Trial
from gradverify.core.model.magnitudes import any_set

_SLIGHT = 1e-4  # of the entry: a kink that opens by more is seen as one
_WIDEST = 1e-3  # of the larger slope, that they may be apart
_CORNER = 0.3  # of the gap, by which it may be another one closer by
_AUDIBLE = 64.0  # times the noise, that it moves an output by there
_ALIKE = 0.1  # of the gap between the slopes, by which what two sets of steps say may differ
_ROWS = 96  # moves looked at, at most
_SAMPLES, _NUMBERS = 32, 40_000_000  # of each move, and numbers held for all of them, at most


def excuse_slight(trial: Trial, judged: Judged) -> Judged:
    """Turn accusations that lie between two slopes which differ a little into kinks."""
    context, chosen = trial.context, trial.chosen
    claimed = context.claimed[chosen]
    accused = (judged.code == Code.MISMATCH) & ~judged.kinked
    accused &= judged.error <= _SLIGHT * torch.maximum(claimed.abs(), judged.numeric.abs())
    rows, outputs = span(accused)
    rows = rows[: min(_ROWS, _NUMBERS // (_SAMPLES * context.width))]
    if not len(rows):
        return judged
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    own, numeric = claimed[place], judged.numeric[place]
    low, high, sure = _slopes(focused(context, outputs), chosen[rows])
    gap, middle = high - low, (high + low) / 2
    slack = _ALIKE * gap
    sure &= gap <= _WIDEST * torch.maximum(low.abs(), high.abs())
    between = (own >= low - slack) & (own <= high + slack) & sure & ((numeric - middle).abs() <= slack)
    excused = torch.zeros_like(accused)
    excused[place] = accused[place] & between
    if not any_set(excused):
        return judged
    return decide(
        judged,
        [(excused, Reason.SMALL_KINK)],
        kinked=judged.kinked | excused,
        numeric=torch.where(excused, claimed, judged.numeric),
        error=judged.error.masked_fill(excused, 0.0),
    )


def _slopes(context: JudgingContext, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smaller and the larger of the one-sided slopes, and where these are sure to differ; each (C, m)."""
    samples = sample(context.sampled, context.column_groups, chosen, coarse_steps(context.lengths))
    found = [_one_sided(context, samples, slice(first, None, 2)) for first in (0, 1)]
    (left, right, bar), (again_left, again_right, again_bar) = found
    gap, again = right - left, again_right - again_left
    clear = torch.minimum(gap.abs(), again.abs()) > BAR_FACTOR * torch.maximum(bar, again_bar)
    sure = clear & ((gap - again).abs() <= _ALIKE * torch.minimum(gap.abs(), again.abs()))
    sure &= (_gap_closer_by(context, chosen, gap) - gap).abs() <= _CORNER * gap.abs()
    return torch.minimum(left, right), torch.maximum(left, right), sure


def _gap_closer_by(context: JudgingContext, chosen: Tensor, gap: Tensor) -> Tensor:
    """Return the gap by the finest steps at which one like this stands above the noise, nan where none is; (C, m).

    A corner that is rounded is smooth there.
    """
    exponents = torch.arange(12, 40, 2, device=gap.device)
    steps = replace(coarse_steps(context.lengths), factors=2.0 ** -exponents.to(torch.float64))
    samples = sample(context.sampled, context.column_groups, chosen, steps)
    bend = (samples.plus - 2 * context.sampled.value + samples.minus) / samples.forth
    heard = gap.abs().unsqueeze(1) * samples.forth > _AUDIBLE * context.noise.level
    order = torch.arange(1, heard.shape[1] + 1, device=heard.device).view(1, -1, 1)
    last = (heard * order).argmax(dim=1, keepdim=True)
    finest, before = bend.gather(1, last), bend.gather(1, (last - 1).clamp(min=0))
    straight = (4 * finest - before) / 3  # without what bends like a parabola
    return torch.where(last >= 1, straight, torch.nan).squeeze(1)


def _one_sided(context: JudgingContext, samples: Samples, rungs: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slopes to the left and to the right by some of the rungs, and the sum of their bars; each (C, m)."""
    level, nothing = difference_noise(context.noise, samples), void(samples)
    slopes = []
    for quotient, steps in zip(one_sided(context.sampled, samples), (samples.back, samples.forth), strict=True):
        usable = trusted(quotient, nothing)[:, rungs]
        slopes.append(tableau(quotient[:, rungs], 2 * level[:, rungs], usable, steps[:, rungs]))
    left, right = slopes
    return left.value, right.value, left.bar + right.bar
