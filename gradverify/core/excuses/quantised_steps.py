"""A quantised forward: larger steps agree with backward, or half precision inside hides the slope."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.verdict import Code, Judged, Reason, decide, span
from gradverify.core.estimate.samples import Samples, central, to_the_end, void
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, halving_steps
from gradverify.core.excuses.trial import Trial
from gradverify.core.forward.sampler import Sampler, along, magnitudes
from gradverify.core.forward.step_noise import heard_at
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import any_set

_NEAR = 0.1  # of how far the claim is from the finest differences, a larger one may be off the claim
_ALIKE = 1e-3  # and the finest ones among each other
_SUDDEN = 0.1  # the first step longer than a stair is off at least: what is smooth departs by 4 times more at each
_SEVERAL = 3  # of the finest steps, on one stair
_LOW = 2.0**-6  # of the gradient, a stair is high at most: where it is higher, larger steps are no average
_UNITS = 8.0  # of rounding, that a gradient may be off by
_RUNGS = range(2, 36)  # steps, by halves, relative to the largest
_ROWS = 24  # moves looked at, at most
_NUMBERS = 40_000_000  # held for all of them
_SPACINGS = tuple(2.0**-k for k in range(3, 13))  # of the samples, relative to the length scale
_STEADY, _SAME = 4, 4.0  # over so many of them, noise stays the same up to this factor; a kink's falls by 8
_HIGHEST = 2.0**-4  # of the output's tensor: what is higher is no precision that anybody computes in
_AROUND = (0.3, 1.0, 3.0, 6.0)  # how far, in length scales, flatness is looked for on either side
_SMALL, _SELDOM = 2.0**-24, 1  # steps there, and how often stairs may end within one
_HEIGHTS = 4.0  # of a stair, that a difference may be off by


def excuse_average(trial: Trial, judged: Judged) -> Judged:
    """Leave accusations at order 2 open that the finest steps alone raise."""
    context, accused = trial.context, judged.code == Code.MISMATCH
    if context.sampled.problem.order == 1:
        return judged
    rows, outputs = span(accused)
    rows = rows[: min(_ROWS, _NUMBERS // (2 * len(_RUNGS) * context.width))]
    if not len(rows):
        return judged
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    factors = torch.tensor([0.5**rung for rung in _RUNGS], dtype=torch.float64, device=rows.device)
    steps = replace(coarse_steps(context.lengths), factors=factors)
    near = focused(context, outputs)
    samples = sample(near.sampled, near.column_groups, trial.chosen[rows], steps)
    excused = torch.zeros_like(accused)
    excused[place] = accused[place] & _shown_on_average(near.sampled, samples, near.claimed[trial.chosen[rows]])
    if not any_set(excused):
        return judged
    bar = torch.where(excused, torch.maximum(judged.bar, judged.error), judged.bar)
    return decide(judged, [(excused, Reason.LARGER_STEPS_AGREE)], bar=bar)


def excuse_flights(trial: Trial, judged: Judged) -> Judged:
    """Leave open what is accused where the output lies on a stair and larger steps show what backward says."""
    context, chosen = trial.context, trial.chosen
    claimed = context.claimed[chosen]
    accused = (judged.code == Code.MISMATCH) & (claimed != 0) & (judged.numeric.abs() <= judged.bar)
    if not any_set(accused):
        return judged
    height = torch.where(_flat_all_around(context), _heights(context), 0.0)
    accused &= height > 0
    rows = accused.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return judged
    samples = sample(context.sampled, context.column_groups, chosen[rows], halving_steps(context.lengths))
    difference = central(samples)
    change = torch.cat([torch.zeros_like(difference[:, :1]), difference.diff(dim=1).abs()], dim=1)
    doubt = _HEIGHTS * height / samples.forth + change
    shown = ((claimed[rows].unsqueeze(1) - difference).abs() <= doubt).any(dim=1)
    open_ = torch.zeros_like(accused)
    open_[rows] = accused[rows] & shown
    return decide(judged, [(open_, Reason.STAIRS_INSIDE)], bar=torch.where(open_, judged.error, judged.bar))


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


def _flat_all_around(context: JudgingContext) -> Tensor:
    """Tell which outputs do not move at small steps wherever they are looked at; (m,).

    Beyond a dead zone, a clamp or a jump they do, and what ripples with any of the inputs moves everywhere.
    """
    generator = torch.Generator().manual_seed(0)
    small = _SMALL * scattered(context.lengths.shared, generator)
    near = _HIGHEST * scattered(context.lengths.shared, generator)
    moved, rises = torch.zeros_like(context.sampled.value, dtype=torch.long), []
    for distance in _AROUND:
        far = distance * scattered(context.lengths.shared, generator)
        for there in (far, -far):
            here = along(context.sampled, there)
            moved += here != along(context.sampled, there + small)
            rises.append((along(context.sampled, there + near) - here).abs())
    return (moved <= _SELDOM) & (_lowest(context, torch.stack(rises)) <= _HIGHEST * context.sampled.size)


def _lowest(context: JudgingContext, rises: Tensor) -> Tensor:
    """Return the lowest of the rises (N, m) of each output's tensor, all of which are whole numbers of stairs; (m,)."""
    steepest = torch.where(rises > 0, rises, torch.inf).amin(dim=0).reciprocal()
    return magnitudes(context.sampled, steepest).reciprocal()


def _heights(context: JudgingContext) -> Tensor:
    """Return how high the stairs of each output are, 0 where its tensor moves in none; (m,)."""
    heard = [magnitudes(context.sampled, heard_at(context.sampled, context.lengths, spacing)) for spacing in _SPACINGS]
    runs = torch.stack(heard).unfold(0, _STEADY, 1)  # (runs, m, steady)
    steady = (runs.amax(dim=2) <= _SAME * runs.amin(dim=2)) & (runs.amin(dim=2) > 0)
    height = torch.where(steady, runs.amax(dim=2), 0.0).amax(dim=0)
    return torch.where(height <= _HIGHEST * context.sampled.size, height, 0.0)
