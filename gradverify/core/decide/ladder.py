"""Verdicts from the ladder of steps: its coarse part for all entries, its fine part for those left open.

Some claims no step can refute: cancellation, a short constant stretch, or noise may hide the slope.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.decide.compare import in_doubt, is_resolved, judge_local, judge_smooth
from gradverify.core.decide.context import JudgingContext, of_column_groups
from gradverify.core.decide.stairs import agrees_with_larger_steps
from gradverify.core.decide.verdict import Code, Judged, Reason, copy_of, decide, put, replaced
from gradverify.core.estimate.column_groups import members, value_of_column
from gradverify.core.estimate.nonsmooth import LadderResult, classify_ladder
from gradverify.core.estimate.samples import (
    BAR_FACTOR,
    NOISE_FACTOR,
    Estimate,
    Samples,
    central_differences,
    is_vanished,
    joined,
    of_rows,
)
from gradverify.core.estimate.smoothness import constant_half_width, constant_tail, largest_changes
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, every_second, fine_steps, halving_steps
from gradverify.core.forward.noise import Noise, rounding_only
from gradverify.core.forward.sampler import Sampler, outputs_near
from gradverify.core.model.magnitudes import any_set, largest_in_tensor
from gradverify.core.tuning import CANCELLATION_UNITS, CLEARLY_ABOVE, CLEARLY_LESS, LOST_UNITS

RUNGS = 32  # steps of a ladder, about: how many samples of it are held
_AGREES = 0.5  # of the claim: a difference this near agrees with it, any other contradicts it
_CONTRADICTIONS = 3  # steps that must contradict the claim
_HIGH_NOISE = 2.0**24  # units of rounding: only noise above this may be variation of the function
_TOO_STEEP = 2.0**10  # times the largest observed change: a steeper claim, over the largest step, is too steep
_FEW_STEPS = 5  # fine steps that are needed to refute a claim


def judge_by_largest_steps(context: JudgingContext, chosen: Tensor) -> tuple[Judged, Tensor]:
    """Return the verdicts (C, m) by the largest steps of the ladder, and the mask of those that need no others."""
    samples = sample(context.sampled, context.column_groups, chosen, halving_steps(context.lengths))
    judged, local = _judged_with_noise(context, samples, None)
    return judged, _is_settled(context, samples, judged, local)


def judge_by_ladder(context: JudgingContext, chosen: Tensor) -> Judged:
    """Return the verdicts (C, m) on column groups by the coarse part of the ladder, or in doubt by all of it."""
    coarse = coarse_steps(context.lengths)
    steps = every_second(coarse, 0) if context.sparse else coarse
    samples = sample(context.sampled, context.column_groups, chosen, steps)
    judged, local = _judged_with_noise(context, samples, None)
    rows = _is_settled(context, samples, judged, local).logical_not().any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return judged
    finer = fine_steps(context.lengths, members(context.column_groups, chosen[rows])[0])
    steps = every_second(finer, 1) if context.sparse else finer
    samples = joined(of_rows(samples, rows), sample(context.sampled, context.column_groups, chosen[rows], steps))
    again, _ = _judged_with_noise(context, samples, local.stair_height[rows])
    outputs = torch.arange(context.sampled.value.numel(), device=chosen.device)
    judged = copy_of(judged)
    put(judged, torch.ones_like(judged.kinked), rows, outputs, again)
    return judged


def _is_settled(context: JudgingContext, samples: Samples, judged: Judged, local: LadderResult) -> Tensor:
    """Mask of entries (C, m) that agree beyond doubt, or with an error bar that noise would exceed at finer steps.

    An entry that only agrees because its error bar is wide, beside the steep slopes at the largest steps, is not one,
    nor one that hardly changes more than by the noise.
    """
    allowance, claimed = of_column_groups(context.allowance, samples.chosen), context.claimed[samples.chosen].abs()
    beyond_doubt = ~in_doubt(judged, torch.zeros_like(judged.kinked), claimed, allowance)
    beyond_doubt &= is_resolved(judged.bar, claimed, allowance)
    limit = NOISE_FACTOR * context.noise.level / samples.forth[:, -1]
    as_noise_allows = (judged.code == Code.MATCH) & ~judged.kinked & (judged.bar <= limit)
    noise = torch.maximum(context.noise.upper_level, local.scatter)
    return (beyond_doubt | as_noise_allows) & ~_is_dominated_by_noise(context.sampled, noise, samples)


def _judged_with_noise(context: JudgingContext, samples: Samples, height: Tensor | None) -> tuple[Judged, LadderResult]:
    """Return the verdicts and the ladder result for these samples.

    If noise cannot be distinguished from a kink far away, a claim that agrees with either is no mismatch.
    """
    local = _classified(context, context.noise, samples, height)
    judged = _verdicts_by(context, samples, local)
    unclear = (context.noise.upper_level > context.noise.level) & local.unsteady & (judged.code == Code.MISMATCH)
    if any_set(unclear):
        upper = replace(context.noise, level=context.noise.upper_level)
        other = _verdicts_by(context, samples, _classified(context, upper, samples, height))
        unsure = (other.code == Code.MATCH) & ~context.noise.persistent
        judged = replaced(judged, unclear, decide(other, [(unsure, Reason.NOISE_OR_KINK)]))
    return _on_level_ground(context, samples, local, _by_finer_steps(context, samples, height, local, judged)), local


def _classified(context: JudgingContext, noise: Noise, samples: Samples, height: Tensor | None) -> LadderResult:
    own = value_of_column(context.column_groups, samples.chosen, context.lengths.own)
    return classify_ladder(context.sampled, noise, samples, own, height, sparse=context.sparse)


def _on_level_ground(context: JudgingContext, samples: Samples, local: LadderResult, judged: Judged) -> Judged:
    """Accept claims of zero if the output is bitwise constant around the point, up to jumps that are no stairs.

    Stairs of rounding have a slope on average, so their height counts as noise.
    """
    claimed = context.claimed[samples.chosen]
    candidates = local.high_stair & (claimed == 0) & (judged.code != Code.MATCH)
    if not any_set(candidates):
        return judged
    width = constant_half_width(context.sampled, samples)
    allowance = of_column_groups(context.allowance, samples.chosen)
    constant = Estimate(value=torch.zeros_like(claimed), bar=NOISE_FACTOR * context.noise.level / width)
    return replaced(judged, candidates & (width > 0), judge_smooth(claimed, constant, allowance, allowance.zero))


def _by_finer_steps(
    context: JudgingContext, samples: Samples, height: Tensor | None, local: LadderResult, judged: Judged
) -> Judged:
    """Judge mismatches and kinks by the finest steps if these show that the noise is variation of the function.

    Steps longer than a ripple average it out, and kinks of other inputs may look like noise. Noise has no derivative at
    finer steps; if they show a definite one, and clearly a different one, the claim is compared with that, unless it is
    the slope of one stair of rounding, and larger steps show the claim.
    """
    noise, upper, kink = context.noise, context.noise.upper_level, judged.code == Code.KINK
    accused = ((judged.code == Code.MISMATCH) | kink) & (upper > CLEARLY_ABOVE * noise.rounding)
    if not any_set(accused):
        return judged
    other = _verdicts_by(context, samples, _classified(context, rounding_only(noise, context.sampled), samples, height))
    difference = (other.numeric - judged.numeric).abs()
    # Beside a kink the slope may be 0, if that is no stair of rounding: the claim would show at the largest step. The
    # mean of the two slopes is what differences show at the kink itself.
    distance = (other.numeric - local.estimate.value).abs()
    at_mean = local.kink & (distance <= BAR_FACTOR * (other.bar + local.estimate.bar))
    accused &= ~kink | (~at_mean & (difference * samples.forth[:, 0] > CLEARLY_ABOVE * upper))
    slope = torch.where(kink, difference, other.numeric.abs())
    definite = BAR_FACTOR * other.bar <= CLEARLY_LESS * torch.minimum(difference, slope)
    agrees = (other.code == Code.MATCH) | ((other.code == Code.UNDETERMINED) & (other.error <= other.allowed))
    definite &= accused & (agrees | (other.code == Code.MISMATCH)) & ~other.bent
    if any_set(definite):
        claimed = context.claimed[samples.chosen]
        definite &= ~agrees_with_larger_steps(context.sampled, samples, claimed, other.numeric)
    if context.sampled.rounding_eps():
        other = decide(other, [(other.code == Code.MATCH, Reason.RIPPLE)])
    return replaced(judged, definite, other)


def _verdicts_by(context: JudgingContext, samples: Samples, local: LadderResult) -> Judged:
    """Return the verdicts by a ladder result; errors due to cancellation or lack of resolution are excused."""
    claimed, allowance = context.claimed[samples.chosen], of_column_groups(context.allowance, samples.chosen)
    judged = judge_local(claimed, local, allowance, torch.zeros_like(claimed))
    floor = _below_cancellation_floor(context, samples.chosen, judged)
    if floor is not None:
        judged = judge_local(claimed, local, allowance, floor)
    fill_values = (judged.code == Code.UNDEFINED) & local.constant & (claimed == 0)
    if any_set(fill_values):
        at_zero = outputs_near(context.sampled, -context.sampled.point)
        fill_values &= context.sampled.value.isinf() & (at_zero == context.sampled.value)
        judged = decide(judged, [(fill_values, Reason.MASKED)])
    wrong = (judged.code == Code.MISMATCH) & ~(local.edge | local.kink)
    if not any_set(wrong):
        return judged
    too_short = wrong & (judged.numeric.abs() <= judged.bar)
    too_short &= _is_too_short_to_tell(context, samples, claimed, local.scatter)
    noise = torch.maximum(context.noise.upper_level, local.scatter)
    wrong &= ~local.constant & _is_too_steep_to_refute(context.sampled, noise, samples, claimed, judged.numeric)
    bar = torch.where(too_short, torch.maximum(judged.bar, judged.error), judged.bar)
    return decide(judged, [(wrong, Reason.TOO_STEEP), (too_short, Reason.SHORT_STRETCH)], bar=bar)


def _below_cancellation_floor(context: JudgingContext, chosen: Tensor, judged: Judged) -> Tensor | None:
    """Return the error that cancellation in the forward may cause, (C, m); None if every mismatch exceeds it.

    Differences need not show such rounding: a saturated term does not move. So it is measured in noisy arithmetic, if
    that may change a verdict.
    """
    wrong = judged.code == Code.MISMATCH
    if not any_set(wrong):
        return None
    units = CANCELLATION_UNITS**context.sampled.problem.order  # a vjp may cancel once more than its forward
    cancellation = units * _rounding_slope(context, chosen)
    if not any_set(wrong & (judged.error <= cancellation)):
        return None
    length = value_of_column(context.column_groups, chosen, context.lengths.nonzero)
    return torch.minimum(cancellation, units * context.rounding_on_the_way() / length)


def _is_too_short_to_tell(context: JudgingContext, samples: Samples, claimed: Tensor, scatter: Tensor) -> Tensor:
    """Mask of outputs whose constant stretch is too short to distinguish the claimed slope from zero; (C, m).

    `scatter` (C, m) is the noise in the samples of each column group.
    """
    sampled, tail = context.sampled, constant_tail(context.sampled, samples)
    longest = torch.where(tail, torch.maximum(samples.forth, samples.back), 0.0).amax(dim=1)
    rise, constant = claimed.abs() * longest, tail.any(dim=1)
    stair = sampled.rounding_size() if any_set(constant) and sampled.rounding_eps() else 0.0
    short = constant & (rise <= LOST_UNITS * sampled.unit * sampled.size.clamp(min=1.0))
    coarse = constant & (rise <= stair)
    if not any_set(short | coarse):
        return short
    candidates = coarse | (short & (~context.changes_at_small_steps() | (rise <= scatter.amax(dim=0))))
    return candidates & ~_contradicted(context, samples, claimed, scatter, stair) if any_set(candidates) else candidates


def _is_dominated_by_noise(sampled: Sampler, noise: Tensor, samples: Samples) -> Tensor:
    """Mask of outputs that change by hardly more than this noise, which may be variation of the function; (C, m)."""
    change = _observed_change(sampled, samples)
    return _may_be_variation(sampled, noise) & (change > 0) & (change <= CLEARLY_ABOVE * noise)


def _is_too_steep_to_refute(
    sampled: Sampler, noise: Tensor, samples: Samples, claimed: Tensor, numeric: Tensor
) -> Tensor:
    """Mask of claims too steep to refute by a flatter slope: the noise may be variation of the function; all (C, m)."""
    high_noise, change = _may_be_variation(sampled, noise), _observed_change(sampled, samples)
    rise = claimed.unsqueeze(1) * samples.forth
    steep = (rise[:, 0].abs() > _TOO_STEEP * change) & (numeric.abs() < CLEARLY_LESS * claimed.abs())
    fine = (rise.abs() <= CLEARLY_LESS * torch.fmin(noise, change).unsqueeze(1)) & ~is_vanished(samples)
    significant = rise.abs() > LOST_UNITS * sampled.unit * sampled.value.abs()
    agrees = (central_differences(samples) - claimed.unsqueeze(1)).abs() <= _AGREES * claimed.abs().unsqueeze(1)
    supports = fine & significant & agrees
    twice = (supports[:, 1:] & supports[:, :-1]).any(dim=1)
    return high_noise & steep & (twice | (fine.sum(dim=1) < _FEW_STEPS))


def _rounding_slope(context: JudgingContext, chosen: Tensor) -> Tensor:
    """Return the rounding of a quantity as large as the output or the input's tensor, per unit of input; (C, m)."""
    sampled, largest = context.sampled, largest_in_tensor(context.sampled.point, context.sampled.inputs)
    size = value_of_column(context.column_groups, chosen, torch.where(largest > 0, largest, 1.0))
    return sampled.unit * (sampled.size / size).clamp(min=1.0)


def _contradicted(context: JudgingContext, samples: Samples, claimed: Tensor, scatter: Tensor, stair: float) -> Tensor:
    """Mask of claims that several steps with a significant claimed change contradict and none supports; (C, m)."""
    slope = claimed.unsqueeze(1)
    rounded = (context.sampled.unit * context.sampled.size.clamp(min=1.0)).clamp(min=stair)
    threshold = CLEARLY_ABOVE * torch.maximum(rounded, scatter)
    significant = (slope.abs() * samples.forth > threshold.unsqueeze(1)) & ~is_vanished(samples)
    contradicts = (central_differences(samples) - slope).abs() > _AGREES * slope.abs()
    return ((significant & contradicts).sum(dim=1) >= _CONTRADICTIONS) & ~(significant & ~contradicts).any(dim=1)


def _may_be_variation(sampled: Sampler, noise: Tensor) -> Tensor:
    """Mask of noise so high above rounding that it may be variation of the function; (C, m)."""
    return noise > _HIGH_NOISE * sampled.unit * torch.maximum(sampled.value.abs(), sampled.size)


def _observed_change(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the largest observed change of each output, (C, m)."""
    return largest_changes(sampled, samples).nan_to_num(0.0, 0.0).amax(dim=1)
