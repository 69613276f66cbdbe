"""Second derivatives that larger steps agree on and the finest ones contradict: stairs of rounding in backward.

Where a sigmoid is saturated, 1 - p moves in stairs of rounding, by each of which the gradient leaps, and between them
it is smooth, with a slope that is none of the function's. Steps over many stairs show what it is on average, and the
more they cross, the better: the leaps weigh less and less. Nothing smooth looks like that. Where the slope bends,
differences depart from it little by little, and pass a claim that is wrong without stopping there.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.excuses.trial import Trial
from gradverify.core.function.flags import any_set
from gradverify.core.function.sampler import Sampler
from gradverify.core.judging.bench import focused
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.judging.replaced import span
from gradverify.core.numeric.ladder import coarse_steps
from gradverify.core.numeric.samples import Samples, central, to_the_end, void
from gradverify.core.numeric.walk import sample

_NEAR = 0.1  # of how far the claim is from the finest differences, a larger one may be off the claim
_ALIKE = 1e-3  # and the finest ones among each other
_SUDDEN = 0.1  # the first step longer than a stair is off at least: what is smooth departs by 4 times more at each
_SEVERAL = 3  # of the finest steps, on one stair
_LOW = 2.0**-6  # of the gradient, a stair is high at most: where it is higher, larger steps are no average
_UNITS = 8.0  # of rounding, that a gradient may be off by
_RUNGS = range(2, 36)  # steps, by halves, relative to the largest
_ROWS = 24  # moves looked at, at most
_NUMBERS = 40_000_000  # held for all of them


def excuse_average(trial: Trial, judged: Judged) -> Judged:
    """Leave accusations at order 2 open that the finest steps alone raise."""
    at, accused = trial.at, judged.code == Code.MISMATCH
    if at.sampled.problem.order == 1:
        return judged
    rows, outputs = span(accused)
    rows = rows[: min(_ROWS, _NUMBERS // (2 * len(_RUNGS) * at.width))]
    if not len(rows):
        return judged
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    factors = torch.tensor([0.5**rung for rung in _RUNGS], dtype=torch.float64, device=rows.device)
    steps = replace(coarse_steps(at.lengths), factors=factors)
    near = focused(at, outputs)
    samples = sample(near.sampled, near.moves, trial.chosen[rows], steps)
    excused = torch.zeros_like(accused)
    excused[place] = accused[place] & _shown_on_average(near.sampled, samples, near.claimed[trial.chosen[rows]])
    if not any_set(excused):
        return judged
    bar = torch.where(excused, torch.maximum(judged.bar, judged.error), judged.bar)
    return replace(judged, code=judged.code.masked_fill(excused, Code.UNDETERMINED), bar=bar)


def _shown_on_average(sampled: Sampler, samples: Samples, claimed: Tensor) -> Tensor:
    """Tell which claims two larger steps in a row agree on, that the finest ones contradict; (C, m)."""
    found, nothing, size = central(samples), void(samples), sampled.value.abs()
    numeric = found[:, -1]
    apart = (claimed - numeric).abs().unsqueeze(1)
    near = ((found - claimed.unsqueeze(1)).abs() <= _NEAR * apart) & ~nothing
    off = (found - numeric.unsqueeze(1)).abs()
    alike = off <= _ALIKE * apart + _UNITS * sampled.unit * size / samples.forth
    stair = to_the_end(alike | nothing) & ~nothing
    above = torch.cat([stair[:, 1:] & ~stair[:, :-1], torch.zeros_like(stair[:, :1])], dim=1)
    sudden = (above & (off >= _SUDDEN * apart)).any(dim=1) & (stair.sum(dim=1) >= _SEVERAL)
    height = torch.where(stair, samples.forth, 0.0).amax(dim=1) * apart.squeeze(1)
    return sudden & (near[:, 1:] & near[:, :-1]).any(dim=1) & (height <= _LOW * size)
