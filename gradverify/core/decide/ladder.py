"""Verdicts from the ladder of steps: its coarse part for all entries, its fine part for those left open."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.decide.compare import in_doubt, is_resolved, judge_local, judge_smooth
from gradverify.core.decide.context import JudgingContext, of_column_groups
from gradverify.core.decide.unresolvable import (
    below_cancellation_floor,
    dominated_by_noise,
    is_too_short_to_tell,
    is_too_steep_to_refute,
    largest_noise,
)
from gradverify.core.decide.verdict import Code, Judged, Reason, copy_of, decide, put, replaced
from gradverify.core.estimate.column_groups import members, value_of_column
from gradverify.core.estimate.nonsmooth import LadderResult, classify_ladder
from gradverify.core.estimate.samples import BAR_FACTOR, NOISE_FACTOR, Estimate, Samples, joined, of_rows
from gradverify.core.estimate.smoothness import constant_half_width
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, fine_steps
from gradverify.core.forward.noise import Noise, rounding_only
from gradverify.core.forward.sampler import outputs_near
from gradverify.core.model.magnitudes import any_set

DEPTH = 32  # approximate number of steps in a ladder
_ABOVE_ROUNDING = 64.0  # times the rounding of outputs: noise above this may be variation of the function
_DEFINITE = 0.25  # of the difference from the other derivative, and of the derivative: ten error bars at most


def judge_by_ladder(context: JudgingContext, chosen: Tensor) -> Judged:
    """Return the verdicts (C, m) on column groups by the coarse part of the ladder, or in doubt by all of it."""
    samples = sample(context.sampled, context.column_groups, chosen, coarse_steps(context.lengths))
    judged, local = _judged_with_noise(context, samples, None)
    in_doubt = ~_agrees_beyond_doubt(context, chosen, judged) | dominated_by_noise(
        context.sampled, largest_noise(context.noise, local), samples
    )
    rows = in_doubt.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return judged
    finer = fine_steps(context.lengths, members(context.column_groups, chosen[rows])[0])
    samples = joined(of_rows(samples, rows), sample(context.sampled, context.column_groups, chosen[rows], finer))
    again, _ = _judged_with_noise(context, samples, local.stair_height[rows])
    outputs = torch.arange(context.sampled.value.numel(), device=chosen.device)
    judged = copy_of(judged)
    put(judged, torch.ones_like(judged.kinked), rows, outputs, again)
    return judged


def _agrees_beyond_doubt(context: JudgingContext, chosen: Tensor, judged: Judged) -> Tensor:
    """Mask of entries (C, m) that agree beyond doubt.

    An entry that only agrees because its error bar is wide, beside the steep slopes at the largest steps, is not one.
    """
    allowance, claimed = of_column_groups(context.allowance, chosen), context.claimed[chosen]
    doubt = in_doubt(judged, torch.zeros_like(judged.kinked), claimed.abs(), allowance)
    return ~doubt & is_resolved(judged.bar, claimed.abs(), allowance)


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
        judged = replaced(judged, unclear, decide(other, [(other.code == Code.MATCH, Reason.NOISE_OR_KINK)]))
    return _on_level_ground(context, samples, local, _by_finer_steps(context, samples, height, judged)), local


def _classified(context: JudgingContext, noise: Noise, samples: Samples, height: Tensor | None) -> LadderResult:
    own = value_of_column(context.column_groups, samples.chosen, context.lengths.own)
    return classify_ladder(context.sampled, noise, samples, own, height)


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


def _by_finer_steps(context: JudgingContext, samples: Samples, height: Tensor | None, judged: Judged) -> Judged:
    """Judge mismatches by the finest steps if these show that the measured noise is variation of the function.

    Steps longer than a ripple average it out. Noise has no derivative at finer steps; if they show a definite one, and
    clearly a different one, the claim is compared with that.
    """
    accused = (judged.code == Code.MISMATCH) & (context.noise.level > _ABOVE_ROUNDING * context.noise.rounding)
    if not any_set(accused):
        return judged
    noise = rounding_only(context.noise, context.sampled)
    other = _verdicts_by(context, samples, _classified(context, noise, samples, height))
    difference = (other.numeric - judged.numeric).abs()
    definite = BAR_FACTOR * other.bar <= _DEFINITE * torch.minimum(difference, other.numeric.abs())
    agrees = (other.code == Code.MATCH) | ((other.code == Code.UNDETERMINED) & (other.error <= other.allowed))
    definite &= accused & (agrees | (other.code == Code.MISMATCH)) & ~other.bent
    if context.sampled.rounding_eps():
        other = decide(other, [(other.code == Code.MATCH, Reason.RIPPLE)])
    return replaced(judged, definite, other)


def _verdicts_by(context: JudgingContext, samples: Samples, local: LadderResult) -> Judged:
    """Return the verdicts by a ladder result; errors due to cancellation or lack of resolution are excused."""
    claimed, allowance = context.claimed[samples.chosen], of_column_groups(context.allowance, samples.chosen)
    judged = judge_local(claimed, local, allowance, torch.zeros_like(claimed))
    floor = below_cancellation_floor(context, samples.chosen, judged, local.steepest)
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
    too_short = (
        wrong & (judged.numeric.abs() <= judged.bar) & is_too_short_to_tell(context, samples, claimed, local.scatter)
    )
    wrong &= ~local.constant & is_too_steep_to_refute(
        context.sampled, largest_noise(context.noise, local), samples, claimed, judged.numeric
    )
    bar = torch.where(too_short, torch.maximum(judged.bar, judged.error), judged.bar)
    return decide(judged, [(wrong, Reason.TOO_STEEP), (too_short, Reason.SHORT_STRETCH)], bar=bar)
