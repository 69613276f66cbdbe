"""Verdicts from the ladder of steps: its coarse part for all entries, its fine part for those left open.

Some claims no step can refute: cancellation, a short constant stretch, or noise may hide the slope.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.decide.compare import in_doubt, is_resolved, judge_local, judge_smooth
from gradverify.core.decide.context import JudgingContext, of_column_groups
from gradverify.core.decide.verdict import Code, Judged, Reason, decide, replaced, with_part
from gradverify.core.estimate.column_groups import members, value_of_column
from gradverify.core.estimate.nonsmooth import LadderResult, classify_ladder
from gradverify.core.estimate.samples import BAR_FACTOR, NOISE_FACTOR, Estimate, Samples, joined, of_rows, of_steps
from gradverify.core.estimate.smoothness import constant_half_width, stair_height
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, fine_steps, halving_steps
from gradverify.core.forward.noise import Noise, at_least, rounding_only
from gradverify.core.forward.sampler import Sampler, is_double, outputs_near
from gradverify.core.model.magnitudes import any_set
from gradverify.core.tuning import CANCELLATION_UNITS, CLEARLY_ABOVE, CLEARLY_LESS, CONVINCING, LOST_UNITS

_HIGH_NOISE = 2.0**24  # units of rounding: only noise above this may be variation of the function
_TOO_STEEP = 2.0**10  # times the largest observed change: a steeper claim, over the largest step, is too steep


def judge_by_largest_steps(context: JudgingContext, chosen: Tensor) -> tuple[Judged, Tensor]:
    """Return the verdicts (C, m) by the largest steps of the ladder, and the mask of those that need no others."""
    samples = sample(context.sampled, context.column_groups, chosen, halving_steps(context.lengths))
    judged, local = _judged_by_samples(context, samples, stair_height(samples))
    return judged, _is_settled(context, samples, judged, local)


def judge_by_ladder(context: JudgingContext, chosen: Tensor) -> Judged:
    """Return the verdicts (C, m) on column groups by the coarse part of the ladder, or in doubt by all of it."""
    samples = sample(context.sampled, context.column_groups, chosen, coarse_steps(context.lengths))
    height = stair_height(samples)
    judged, local = _judged_by_samples(context, samples, height)
    rows = _is_settled(context, samples, judged, local).logical_not().any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return judged
    steps = fine_steps(context.lengths, members(context.column_groups, chosen[rows])[0])
    samples = joined(of_rows(samples, rows), sample(context.sampled, context.column_groups, chosen[rows], steps))
    height = torch.maximum(stair_height(samples), height[rows])  # finer steps may hide stairs again
    return with_part(judged, rows, _judged_with_noise(context, samples, height))


def judge_along_line(context: JudgingContext) -> Judged:
    """Return the verdicts (1, m) along a line by every second step of the whole ladder; see `along_line`."""
    line = context.column_groups.group_of.new_zeros(1)
    coarse, fine = coarse_steps(context.lengths), fine_steps(context.lengths, members(context.column_groups, line)[0])
    steps = replace(coarse, factors=torch.cat([coarse.factors[::2], fine.factors[1::2]]))
    samples = sample(context.sampled, context.column_groups, line, steps)
    height = stair_height(of_steps(samples, slice(len(coarse.factors[::2]))))
    return _judged_with_noise(context, samples, torch.maximum(stair_height(samples), height))


def _is_settled(context: JudgingContext, samples: Samples, judged: Judged, local: LadderResult) -> Tensor:
    """Mask of entries (C, m) that need no finer steps.

    They are resolved and not in doubt, or match with a bar as small as noise allows. Those that change by less than 64
    times the noise are none of them where that noise may be variation of the function.
    """
    allowance, claimed = of_column_groups(context.allowance, samples.chosen), context.claimed[samples.chosen].abs()
    beyond_doubt = ~in_doubt(judged, torch.zeros_like(judged.kinked), claimed, allowance)
    beyond_doubt &= is_resolved(judged.bar, claimed, allowance)
    limit = NOISE_FACTOR * context.noise.level / samples.forth[:, -1]
    as_noise_allows = (judged.code == Code.MATCH) & ~judged.kinked & (judged.bar <= limit)
    noise = torch.maximum(context.noise.upper_level, local.scatter)
    change = _observed_change(samples)  # hardly more than the noise, which may be variation of the function
    by_noise = _may_be_variation(context.sampled, noise) & (change > 0) & (change <= CLEARLY_ABOVE * noise)
    return (beyond_doubt | as_noise_allows) & ~by_noise


def _judged_with_noise(context: JudgingContext, samples: Samples, height: Tensor) -> Judged:
    """Return the verdicts for all samples of the ladder.

    Mismatches are judged again with rounding on the way as noise: differences need not show it, since a saturated term
    does not move, and between two stairs of rounding a difference is smooth, with a slope that is not the function's.
    It is measured only if much of it would change a verdict, or the numeric derivative.
    """
    judged, _ = _judged_by_samples(context, samples, height)
    may_change = judged.code == Code.MISMATCH
    for measure in (lambda: _much_rounding(context), *context.rounding_bounds):
        if not any_set(may_change):
            return judged
        noise = at_least(context.noise, measure())
        again, _ = _judged_by_samples(replace(context, noise=noise), samples, height)
        moved = (again.numeric - judged.numeric).abs() > again.bar + judged.bar
        may_change &= (again.code != Code.MISMATCH) | moved
    if not is_double(context.sampled):  # what counts as stairs may be quick variation of the function
        again = decide(again, [(again.code == Code.MATCH, Reason.NOISE_OR_KINK)])
    return replaced(judged, may_change, again)


def _much_rounding(context: JudgingContext) -> Tensor:
    """Return a large amount of rounding of the largest output, of the inputs, or of numbers around 1; (m,)."""
    largest = max(1.0, float(context.lengths.nonzero.max()))
    return CANCELLATION_UNITS**2 * context.sampled.unit * context.sampled.size.clamp(min=largest)


def _judged_by_samples(context: JudgingContext, samples: Samples, height: Tensor) -> tuple[Judged, LadderResult]:
    """Return the verdicts and the ladder result for these samples, with the noise of the context.

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
    return _accept_zero(context, samples, local, _by_finer_steps(context, samples, height, local, judged)), local


def _classified(context: JudgingContext, noise: Noise, samples: Samples, height: Tensor) -> LadderResult:
    own = value_of_column(context.column_groups, samples.chosen, context.lengths.own)
    return classify_ladder(context.sampled, noise, samples, own, height, sparse=context.sparse)


def _accept_zero(context: JudgingContext, samples: Samples, local: LadderResult, judged: Judged) -> Judged:
    """Accept claims of zero if the output is bitwise constant around the point, up to jumps that are no stairs.

    Stairs of rounding have a slope on average, so their height counts as noise.
    """
    claimed = context.claimed[samples.chosen]
    candidates = local.high_stair & (claimed == 0) & (judged.code != Code.MATCH)
    if not any_set(candidates):
        return judged
    width = constant_half_width(samples)
    allowance = of_column_groups(context.allowance, samples.chosen)
    constant = Estimate(value=torch.zeros_like(claimed), bar=NOISE_FACTOR * context.noise.level / width)
    return replaced(judged, candidates & (width > 0), judge_smooth(claimed, constant, allowance, allowance.zero))


def _by_finer_steps(
    context: JudgingContext, samples: Samples, height: Tensor, local: LadderResult, judged: Judged
) -> Judged:
    """Judge mismatches and kinks by the finest steps if these show that the noise is variation of the function.

    Steps longer than a ripple average it out, and kinks of other inputs may look like noise. Noise has no derivative at
    finer steps; if they show a definite one, and clearly a different one, the claim is compared with that.
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
    may_be_rounding = definite  # of intermediate results, and so no variation of the function
    for measure in (lambda: _much_rounding(context), *context.rounding_bounds):
        if any_set(may_be_rounding):
            may_be_rounding = may_be_rounding & (upper <= CLEARLY_ABOVE * measure())
    return replaced(judged, definite & ~may_be_rounding, other)


def _verdicts_by(context: JudgingContext, samples: Samples, local: LadderResult) -> Judged:
    """Return the verdicts by a ladder result; errors due to lack of resolution are excused."""
    claimed, allowance = context.claimed[samples.chosen], of_column_groups(context.allowance, samples.chosen)
    judged = judge_local(claimed, local, allowance)
    fill_values = (judged.code == Code.UNDEFINED) & local.constant & (claimed == 0)
    if any_set(fill_values):
        at_zero = outputs_near(context.sampled, -context.sampled.point)
        fill_values &= context.sampled.value.isinf() & (at_zero == context.sampled.value)
        judged = decide(judged, [(fill_values, Reason.MASKED)])
    wrong = (judged.code == Code.MISMATCH) & ~(local.edge | local.kink)
    if not any_set(wrong):
        return judged
    noise = torch.maximum(context.noise.upper_level, local.scatter)
    wrong &= ~local.constant & _is_too_steep_to_refute(context.sampled, noise, samples, claimed, judged.numeric)
    return decide(judged, [(wrong, Reason.TOO_STEEP)])


def _is_too_steep_to_refute(
    sampled: Sampler, noise: Tensor, samples: Samples, claimed: Tensor, numeric: Tensor
) -> Tensor:
    """Mask of claims too steep to refute by a flatter slope: the noise may be variation of the function; all (C, m)."""
    high_noise, change = _may_be_variation(sampled, noise), _observed_change(samples)
    rise = claimed.unsqueeze(1) * samples.forth
    steep = (rise[:, 0].abs() > _TOO_STEEP * change) & (numeric.abs() < CLEARLY_LESS * claimed.abs())
    fine = (rise.abs() <= CLEARLY_LESS * torch.fmin(noise, change).unsqueeze(1)) & ~samples.vanished
    significant = rise.abs() > LOST_UNITS * sampled.unit * sampled.value.abs()
    agrees = (samples.difference - claimed.unsqueeze(1)).abs() <= CLEARLY_LESS * claimed.abs().unsqueeze(1)
    supports = fine & significant & agrees
    twice = (supports[:, 1:] & supports[:, :-1]).any(dim=1)
    return high_noise & steep & (twice | (fine.sum(dim=1) < CONVINCING))


def _may_be_variation(sampled: Sampler, noise: Tensor) -> Tensor:
    """Mask of noise so high above rounding that it may be variation of the function; (C, m)."""
    return noise > _HIGH_NOISE * sampled.unit * torch.maximum(sampled.value.abs(), sampled.size)


def _observed_change(samples: Samples) -> Tensor:
    """Return the largest observed change of each output, (C, m)."""
    return samples.largest_change.nan_to_num(0.0, 0.0).amax(dim=1)
