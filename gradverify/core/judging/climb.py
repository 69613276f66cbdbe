"""The thorough pass: a ladder of steps, which those left open climb down to its end."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.function.flags import any_set
from gradverify.core.function.noise import but_for_rounding
from gradverify.core.function.sampler import Sampler, along
from gradverify.core.judging.bench import Bench, of_moves
from gradverify.core.judging.compare import Code, Judged, is_resolved, judge_local, judge_smooth
from gradverify.core.judging.doubt import in_doubt
from gradverify.core.judging.faint import excused
from gradverify.core.judging.replaced import replaced
from gradverify.core.judging.steep import drowned, heard, unseen
from gradverify.core.judging.still import says_nothing
from gradverify.core.numeric.ladder import coarse_steps, fine_steps
from gradverify.core.numeric.moves import members, owned
from gradverify.core.numeric.nonsmooth import Local, examine
from gradverify.core.numeric.plateau import level_stretch
from gradverify.core.numeric.samples import BAR_FACTOR, NOISE_FACTOR, Estimate, Samples, joined, of_rows
from gradverify.core.numeric.walk import sample

_NEXT_TO_NOTHING = 2.0**-30  # of each input
DEPTH = 32  # rungs of a ladder, about
_LOUD = 64.0  # times what rounding explains: noise that may be the function itself
_DEFINITE = 0.25  # of how far two derivatives are apart, and of the finer one: ten bars of one that is told from both


def thorough(at: Bench, chosen: Tensor) -> Judged:
    """Judge the moves by the coarse part of the ladder, and those that it leaves open by the fine part too."""
    samples = sample(at.sampled, at.moves, chosen, coarse_steps(at.lengths))
    judged, local = _judged(at, samples, None)
    open_ = ~_settled(at, chosen, judged) | drowned(at.sampled, heard(at.noise, local), samples)
    rows = open_.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return judged
    finer = fine_steps(at.lengths, members(at.moves, chosen[rows])[0])
    samples = joined(of_rows(samples, rows), sample(at.sampled, at.moves, chosen[rows], finer))
    again, _ = _judged(at, samples, local.height[rows])
    every = torch.arange(at.sampled.value.numel(), device=chosen.device)
    return replaced(judged, torch.ones_like(judged.kinked), rows, every, again)


def _settled(at: Bench, chosen: Tensor, judged: Judged) -> Tensor:
    """Tell which entries agree beyond doubt, (C, m).

    Not those that agree for want of precision alone, beside the steep slopes that the largest steps have seen.
    """
    allowance, claimed = of_moves(at.allowance, chosen), at.claimed[chosen]
    doubt = in_doubt(judged, torch.zeros_like(judged.kinked), claimed.abs(), allowance)
    return ~doubt & is_resolved(judged.bar, claimed.abs(), allowance)


def _judged(at: Bench, samples: Samples, height: Tensor | None) -> tuple[Judged, Local]:
    """Return the verdicts, and what the samples show.

    Where it is open whether there is noise or a kink far off, what agrees with either is not accused.
    """
    own = owned(at.moves, samples.moves, at.lengths.own)
    local = examine(at.sampled, at.noise, samples, own, height)
    judged = _held_against(at, samples, local)
    open_ = (at.noise.loud > at.noise.level) & local.unsteady & (judged.code == Code.MISMATCH)
    if any_set(open_):
        loud = replace(at.noise, level=at.noise.loud)
        other = _held_against(at, samples, examine(at.sampled, loud, samples, own, height))
        every = torch.arange(len(open_), device=open_.device), torch.arange(open_.shape[1], device=open_.device)
        code = other.code.masked_fill((other.code == Code.MATCH) & ~at.noise.lasting, Code.UNDETERMINED)
        judged = replaced(judged, open_, *every, replace(other, code=code))
    return _on_level_ground(at, samples, local, _by_finer_steps(at, samples, height, judged)), local


def _on_level_ground(at: Bench, samples: Samples, local: Local, judged: Judged) -> Judged:
    """Let a claim of zero match where an output stays bit for bit as it is, up to leaps that are no stairs.

    Of stairs, whose height counts as noise, nobody can say whether their slope is meant.
    """
    claimed = at.claimed[samples.moves]
    open_ = local.stairs & (claimed == 0) & (judged.code != Code.MATCH)
    if not any_set(open_):
        return judged
    width = level_stretch(at.sampled, samples)
    allowance = of_moves(at.allowance, samples.moves)
    level = Estimate(value=torch.zeros_like(claimed), bar=NOISE_FACTOR * at.noise.level / width)
    every = torch.arange(len(open_), device=open_.device), torch.arange(open_.shape[1], device=open_.device)
    return replaced(judged, open_ & (width > 0), *every, judge_smooth(claimed, level, allowance, allowance.zero))


def _by_finer_steps(at: Bench, samples: Samples, height: Tensor | None, judged: Judged) -> Judged:
    """Judge accusations by the finest steps, where these show that what was taken for noise is the function itself.

    A ripple on something that rises vanishes in the average, at every step longer than it. Where there is noise, finer
    steps show no derivative; where they show a definite one, clearly another, it is that which backward has to say.
    """
    accused = (judged.code == Code.MISMATCH) & (at.noise.level > _LOUD * at.noise.rounding)
    if not any_set(accused):
        return judged
    quiet = but_for_rounding(at.noise, at.sampled)
    own = owned(at.moves, samples.moves, at.lengths.own)
    other = _held_against(at, samples, examine(at.sampled, quiet, samples, own, height))
    apart = (other.numeric - judged.numeric).abs()
    definite = BAR_FACTOR * other.bar <= _DEFINITE * torch.minimum(apart, other.numeric.abs())
    agrees = (other.code == Code.MATCH) | ((other.code == Code.UNDETERMINED) & (other.error <= other.allowed))
    definite &= accused & (agrees | (other.code == Code.MISMATCH)) & ~other.bent
    every = torch.arange(len(definite), device=definite.device), torch.arange(definite.shape[1], device=definite.device)
    if at.sampled.narrow():
        other = replace(other, code=other.code.masked_fill(other.code == Code.MATCH, Code.UNDETERMINED))
    return replaced(judged, definite, *every, other)


def _stays_infinite(sampled: Sampler) -> Tensor:
    """Tell which outputs are as infinite where all inputs are next to nothing, and nothing, as masks are; (m,)."""
    small, nothing = (along(sampled, -part * sampled.point) for part in (1 - _NEXT_TO_NOTHING, 1.0))
    return sampled.value.isinf() & (small == sampled.value) & (nothing == sampled.value)


def _held_against(at: Bench, samples: Samples, local: Local) -> Judged:
    """Return the verdicts on what the samples show, after another look at what rounding inside may excuse."""
    claimed, allowance = at.claimed[samples.moves], of_moves(at.allowance, samples.moves)
    judged = judge_local(claimed, local, allowance, torch.zeros_like(claimed))
    faint = excused(at, samples.moves, judged, local.seen)
    if faint is not None:
        judged = judge_local(claimed, local, allowance, faint)
    filled = (judged.code == Code.OUTSIDE) & local.idle & (claimed == 0)
    if any_set(filled):
        filled &= _stays_infinite(at.sampled)
        judged = replace(judged, code=judged.code.masked_fill(filled, Code.MATCH))
    wrong = (judged.code == Code.MISMATCH) & ~(local.edge | local.kink)
    if not any_set(wrong):
        return judged
    still = wrong & (judged.numeric.abs() <= judged.bar) & says_nothing(at, samples, claimed, local.scatter)
    wrong &= ~local.idle & unseen(at.sampled, heard(at.noise, local), samples, claimed, judged.numeric)
    code = judged.code.masked_fill(wrong | still, Code.UNDETERMINED)
    return replace(judged, code=code, bar=torch.where(still, torch.maximum(judged.bar, judged.error), judged.bar))
