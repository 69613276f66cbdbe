"""The thorough pass: a ladder of steps, which those left open climb down to its end."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.decide.compare import is_resolved, judge_local, judge_smooth
from gradverify.core.decide.context import JudgingContext, of_moves
from gradverify.core.decide.doubt import in_doubt
from gradverify.core.decide.unresolvable import below_cancellation_floor, drowned, heard, is_too_short_to_tell, unseen
from gradverify.core.decide.verdict import Code, Judged, Reason, decide, replaced
from gradverify.core.estimate.column_groups import members, owned
from gradverify.core.estimate.nonsmooth import Local, examine
from gradverify.core.estimate.samples import BAR_FACTOR, NOISE_FACTOR, Estimate, Samples, joined, of_rows
from gradverify.core.estimate.staircase import level_stretch
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, fine_steps
from gradverify.core.forward.noise import but_for_rounding
from gradverify.core.forward.sampler import Sampler, along
from gradverify.core.model.magnitudes import any_set

_NEXT_TO_NOTHING = 2.0**-30  # of each input
DEPTH = 32  # rungs of a ladder, about
_LOUD = 64.0  # times what rounding explains: noise that may be the function itself
_DEFINITE = 0.25  # of how far two derivatives are apart, and of the finer one: ten bars of one that is told from both


def judge_by_ladder(context: JudgingContext, chosen: Tensor) -> Judged:
    """Judge the moves by the coarse part of the ladder, and those that it leaves open by the fine part too."""
    samples = sample(context.sampled, context.column_groups, chosen, coarse_steps(context.lengths))
    judged, local = _judged(context, samples, None)
    open_ = ~_settled(context, chosen, judged) | drowned(context.sampled, heard(context.noise, local), samples)
    rows = open_.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return judged
    finer = fine_steps(context.lengths, members(context.column_groups, chosen[rows])[0])
    samples = joined(of_rows(samples, rows), sample(context.sampled, context.column_groups, chosen[rows], finer))
    again, _ = _judged(context, samples, local.height[rows])
    every = torch.arange(context.sampled.value.numel(), device=chosen.device)
    return replaced(judged, torch.ones_like(judged.kinked), rows, every, again)


def _settled(context: JudgingContext, chosen: Tensor, judged: Judged) -> Tensor:
    """Tell which entries agree beyond doubt, (C, m).

    Not those that agree for want of precision alone, beside the steep slopes that the largest steps have seen.
    """
    allowance, claimed = of_moves(context.allowance, chosen), context.claimed[chosen]
    doubt = in_doubt(judged, torch.zeros_like(judged.kinked), claimed.abs(), allowance)
    return ~doubt & is_resolved(judged.bar, claimed.abs(), allowance)


def _judged(context: JudgingContext, samples: Samples, height: Tensor | None) -> tuple[Judged, Local]:
    """Return the verdicts, and what the samples show.

    Where it is open whether there is noise or a kink far off, what agrees with either is not accused.
    """
    own = owned(context.column_groups, samples.chosen, context.lengths.own)
    local = examine(context.sampled, context.noise, samples, own, height)
    judged = _held_against(context, samples, local)
    open_ = (context.noise.loud > context.noise.level) & local.unsteady & (judged.code == Code.MISMATCH)
    if any_set(open_):
        loud = replace(context.noise, level=context.noise.loud)
        other = _held_against(context, samples, examine(context.sampled, loud, samples, own, height))
        every = torch.arange(len(open_), device=open_.device), torch.arange(open_.shape[1], device=open_.device)
        unsure = (other.code == Code.MATCH) & ~context.noise.lasting
        judged = replaced(judged, open_, *every, decide(other, [(unsure, Reason.NOISE_OR_KINK)]))
    return _on_level_ground(context, samples, local, _by_finer_steps(context, samples, height, judged)), local


def _on_level_ground(context: JudgingContext, samples: Samples, local: Local, judged: Judged) -> Judged:
    """Let a claim of zero match where an output stays bit for bit as it is, up to leaps that are no stairs.

    Of stairs, whose height counts as noise, nobody can say whether their slope is meant.
    """
    claimed = context.claimed[samples.chosen]
    open_ = local.stairs & (claimed == 0) & (judged.code != Code.MATCH)
    if not any_set(open_):
        return judged
    width = level_stretch(context.sampled, samples)
    allowance = of_moves(context.allowance, samples.chosen)
    level = Estimate(value=torch.zeros_like(claimed), bar=NOISE_FACTOR * context.noise.level / width)
    every = torch.arange(len(open_), device=open_.device), torch.arange(open_.shape[1], device=open_.device)
    return replaced(judged, open_ & (width > 0), *every, judge_smooth(claimed, level, allowance, allowance.zero))


def _by_finer_steps(context: JudgingContext, samples: Samples, height: Tensor | None, judged: Judged) -> Judged:
    """Judge accusations by the finest steps, where these show that what was taken for noise is the function itself.

    A ripple on something that rises vanishes in the average, at every step longer than it. Where there is noise, finer
    steps show no derivative; where they show a definite one, clearly another, it is that which backward has to say.
    """
    accused = (judged.code == Code.MISMATCH) & (context.noise.level > _LOUD * context.noise.rounding)
    if not any_set(accused):
        return judged
    quiet = but_for_rounding(context.noise, context.sampled)
    own = owned(context.column_groups, samples.chosen, context.lengths.own)
    other = _held_against(context, samples, examine(context.sampled, quiet, samples, own, height))
    apart = (other.numeric - judged.numeric).abs()
    definite = BAR_FACTOR * other.bar <= _DEFINITE * torch.minimum(apart, other.numeric.abs())
    agrees = (other.code == Code.MATCH) | ((other.code == Code.UNDETERMINED) & (other.error <= other.allowed))
    definite &= accused & (agrees | (other.code == Code.MISMATCH)) & ~other.bent
    every = torch.arange(len(definite), device=definite.device), torch.arange(definite.shape[1], device=definite.device)
    if context.sampled.narrow():
        other = decide(other, [(other.code == Code.MATCH, Reason.RIPPLE)])
    return replaced(judged, definite, *every, other)


def _stays_infinite(sampled: Sampler) -> Tensor:
    """Tell which outputs are as infinite where all inputs are next to nothing, and nothing, as masks are; (m,)."""
    small, nothing = (along(sampled, -part * sampled.point) for part in (1 - _NEXT_TO_NOTHING, 1.0))
    return sampled.value.isinf() & (small == sampled.value) & (nothing == sampled.value)


def _held_against(context: JudgingContext, samples: Samples, local: Local) -> Judged:
    """Return the verdicts on what the samples show, after another look at what rounding inside may excuse."""
    claimed, allowance = context.claimed[samples.chosen], of_moves(context.allowance, samples.chosen)
    judged = judge_local(claimed, local, allowance, torch.zeros_like(claimed))
    faint = below_cancellation_floor(context, samples.chosen, judged, local.seen)
    if faint is not None:
        judged = judge_local(claimed, local, allowance, faint)
    filled = (judged.code == Code.UNDEFINED) & local.idle & (claimed == 0)
    if any_set(filled):
        filled &= _stays_infinite(context.sampled)
        judged = decide(judged, [(filled, Reason.MASKED)])
    wrong = (judged.code == Code.MISMATCH) & ~(local.edge | local.kink)
    if not any_set(wrong):
        return judged
    still = (
        wrong & (judged.numeric.abs() <= judged.bar) & is_too_short_to_tell(context, samples, claimed, local.scatter)
    )
    wrong &= ~local.idle & unseen(context.sampled, heard(context.noise, local), samples, claimed, judged.numeric)
    bar = torch.where(still, torch.maximum(judged.bar, judged.error), judged.bar)
    return decide(judged, [(wrong, Reason.TOO_STEEP), (still, Reason.SHORT_STRETCH)], bar=bar)
