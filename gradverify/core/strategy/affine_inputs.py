"""Inputs in which the function is affine: one step per column group measures their columns."""

from __future__ import annotations

from itertools import compress

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, of_column_groups, part_of
from gradverify.core.decide.directional_sums import columns_do_not_add_up
from gradverify.core.decide.screen import screened
from gradverify.core.decide.tolerance import EntryTolerance
from gradverify.core.decide.verdict import Judged, Part, of_rows, stacked
from gradverify.core.estimate.directional import LONG_STEP
from gradverify.core.estimate.richardson import LARGEST_DEVIATION
from gradverify.core.estimate.samples import NOISE_FACTOR, Estimate
from gradverify.core.estimate.stencil import sample_one_step
from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.noise import Noise
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.model.memory import chunks, portion, rows_at_once

_FARTHER = 4.0  # times the step, in the test for affinity: curvature below the noise there is far below it at one step


def affine_column_groups(context: JudgingContext, seed: int) -> Part | None:
    """Judge the column groups along which the function is affine with the claimed slope.

    Return these groups with the verdicts on their entries. None if there is no such group, if a test costs more than it
    saves, or if the measured entries do not add up along a random direction.
    """
    if context.column_groups.count * context.numbers_per_sample < portion(context.claimed):
        return None
    generator = torch.Generator().manual_seed(seed + 2)
    affine = _affine_by_input(context, random_magnitudes(context.lengths.step, generator))
    if not len(affine):
        return None
    parts = [_judged_by_one_step(context, chosen) for chosen in chunks(affine, context.numbers_per_sample)]
    matching = torch.cat([mask for _, mask in parts])
    judged = stacked([verdicts for verdicts, _ in parts])
    if not all_set(matching):
        affine, judged = affine[matching], of_rows(judged, matching)
    if not len(affine) or any_set(columns_do_not_add_up(context, affine, judged, generator)):
        return None
    return affine, judged


def _affine_by_input(context: JudgingContext, direction: Tensor) -> Tensor:
    """Return the column groups of the inputs in which f is affine along one random direction; (k,)."""
    sampled, blocks = context.sampled, context.sampled.inputs
    distance = torch.stack([zero_outside(direction, block.coordinates) for block in blocks]).mul_(_FARTHER * LONG_STEP)
    values = sampled.value.new_empty(2, len(blocks), len(sampled.value))
    evaluate(sampled, torch.cat([sampled.point + distance, sampled.point - distance]), values.flatten(0, 1))
    plus, minus = values
    bend = (plus + minus).sub_(sampled.value, alpha=2.0).abs_()
    is_affine = (bend <= _noise_of_samples(context.noise, plus - minus, LARGEST_DEVIATION)).all(dim=1).tolist()
    mask = torch.zeros(context.column_groups.count, dtype=torch.bool, device=direction.device)
    for block in compress(blocks, is_affine):
        mask[context.column_groups.colour[block.coordinates]] = True
    return mask.nonzero().squeeze(1)


def _judged_by_one_step(context: JudgingContext, chosen: Tensor) -> tuple[Judged, Tensor]:
    """Judge the entries of some column groups by one step each.

    Return the verdicts, and the mask (C,) of groups whose entries all have the claimed slope. The verdicts outside the
    mask mean nothing.
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
