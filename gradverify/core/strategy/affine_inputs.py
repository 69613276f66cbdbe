"""Inputs in which the function is affine: one step per column group measures their columns."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, of_column_groups, part_of
from gradverify.core.decide.directional_sums import sum_along
from gradverify.core.decide.screen import screened
from gradverify.core.decide.tolerance import EntryTolerance
from gradverify.core.decide.verdict import Judged, Part, of_rows, stacked
from gradverify.core.estimate.directional import FIRST, LONG_STEP, differs
from gradverify.core.estimate.richardson import LARGEST_DEVIATION
from gradverify.core.estimate.samples import NOISE_FACTOR, Estimate
from gradverify.core.estimate.stencil import sample_one_step
from gradverify.core.forward.batching import on_line
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import first_linear
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.model.memory import chunks, portion, rows_at_once

# In length scales. Curvature below the noise at the first pair is far below it at a step; variation on a shorter length
# than the step shows at the second.
_DISTANCES = (4.0 * LONG_STEP, -4.0 * LONG_STEP, FIRST, -FIRST)


def affine_column_groups(context: JudgingContext, seed: int, *, only_cotangents: bool) -> Part | None:
    """Judge the column groups along which the function is affine with the claimed slope.

    Return these groups with the verdicts on their entries. None if there is no such group, or if the measured entries
    do not add up along a random direction. In a small Jacobian too, only cotangents are tested: for other inputs the
    test costs more than it saves.
    """
    sampled, groups = context.sampled, context.column_groups
    only_cotangents |= groups.count * context.numbers_per_sample < portion(context.claimed)
    direction = random_magnitudes(context.lengths.step, torch.Generator().manual_seed(seed + 2))
    affine, lines = torch.zeros(groups.count, dtype=torch.bool, device=direction.device), []
    for block in sampled.inputs:
        if block.start >= first_linear(sampled) or not only_cotangents:
            part = zero_outside(direction, block.coordinates)
            values = on_line(sampled, part, _DISTANCES)
            if _is_affine(context, values):
                affine[groups.colour[block.coordinates]] = True
                lines.append((part, values))
    chosen = affine.nonzero().squeeze(1)
    if not len(chosen):
        return None
    parts = [_judged_by_one_step(context, part) for part in chunks(chosen, context.numbers_per_sample)]
    matching = torch.cat([mask for _, mask in parts])
    judged = stacked([verdicts for verdicts, _ in parts])
    if not all(_adds_up(context, chosen, judged, part, values) for part, values in lines):
        return None
    if not all_set(matching):
        chosen, judged = chosen[matching], of_rows(judged, matching)
    return (chosen, judged) if len(chosen) else None


def _is_affine(context: JudgingContext, values: Tensor) -> bool:
    """True if the changes to both sides, at the largest of `_DISTANCES`, are opposite up to noise."""
    plus, minus, *_ = values
    bend = (plus + minus).sub_(context.sampled.value, alpha=2.0).abs_()
    return all_set(bend <= _noise_of_samples(context.noise, plus - minus, LARGEST_DEVIATION))


def _adds_up(context: JudgingContext, chosen: Tensor, judged: Judged, direction: Tensor, values: Tensor) -> bool:
    """True if the measured entries of these groups give the slopes along a direction, from both pairs of samples."""
    total = sum_along(context, chosen, judged, direction)
    for distance, plus, minus in zip(_DISTANCES[::2], values[::2], values[1::2], strict=True):
        rise = (plus - minus).div_(2.0)
        bar = _noise_of_samples(context.noise, rise, NOISE_FACTOR).div_(distance)
        if any_set(differs(Estimate(value=rise.div_(distance), bar=bar), total)):
            return False
    return True


def _judged_by_one_step(context: JudgingContext, chosen: Tensor) -> tuple[Judged, Tensor]:
    """Judge the entries of some column groups by one step each.

    Return the verdicts, and the mask (C,) of groups whose entries all have the claimed slope.
    """
    values, distance = sample_one_step(context.sampled, context.column_groups, chosen, context.lengths.step * LONG_STEP)
    is_all = len(chosen) == context.column_groups.count
    claimed = context.claimed if is_all else context.claimed[chosen]
    allowance = of_column_groups(context.allowance, chosen)
    parts, height = [], rows_at_once(claimed)
    for top in range(0, len(chosen), height):
        rows = slice(top, top + height)
        tolerance, rise = part_of(allowance, rows, slice(None)), values[rows] - context.sampled.value
        parts.append(_judge_differences(rise, distance[rows], claimed[rows], context.noise, tolerance))
    return stacked([judged for judged, _ in parts]), torch.cat([certain for _, certain in parts])


def _judge_differences(
    rise: Tensor, distance: Tensor, claimed: Tensor, noise: Noise, allowance: EntryTolerance
) -> tuple[Judged, Tensor]:
    """Judge the claims by the differences `rise`, f(x + h) - f(x) with h = `distance`; see `_judged_by_one_step`."""
    bar = _noise_of_samples(noise, rise, 2 * NOISE_FACTOR).div_(distance)  # a central one is divided by 2 h
    estimate = Estimate(value=rise.div_(distance), bar=bar)
    off = (claimed - estimate.value).abs_() > allowance.atol.add_(bar)
    found = screened(claimed, allowance, estimate, off)
    return found.judged, found.doubt.any(dim=1).logical_not_()


def _noise_of_samples(noise: Noise, rise: Tensor, times: float) -> Tensor:
    """Return `times` a noise bound for samples up to |rise| from f(x): larger samples have more noise."""
    return torch.addcmul(times * noise.level, rise.abs(), times * noise.relative_level)
