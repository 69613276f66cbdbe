"""Inputs in which the function is affine: one step per column group measures their columns."""

from __future__ import annotations

from itertools import compress

import torch
from torch import Tensor

from gradverify.core.decide.columns import KnownVerdicts
from gradverify.core.decide.context import JudgingContext, of_column_groups, part_of
from gradverify.core.decide.screen import screened
from gradverify.core.decide.tolerance import EntryTolerance
from gradverify.core.decide.verdict import Judged, of_rows, stacked
from gradverify.core.estimate.column_groups import spread_to_entries
from gradverify.core.estimate.directional import LONG_STEP, sum_differs_near_point
from gradverify.core.estimate.richardson import LARGEST_DEVIATION
from gradverify.core.estimate.samples import NOISE_FACTOR, Estimate
from gradverify.core.estimate.stencil import sample_one_step
from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.model.memory import chunks, portion, rows_at_once

_FARTHER = 4.0  # times the step, in the test for affinity: curvature below the noise there is far below it at one step


def affine_column_groups(context: JudgingContext, seed: int) -> KnownVerdicts | None:
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
    judged = stacked([verdicts for verdicts, _ in parts]) if len(parts) > 1 else parts[0][0]
    if not all_set(matching):
        affine, judged = affine[matching], of_rows(judged, matching)
    other = random_magnitudes(context.lengths.step, generator)
    return (
        KnownVerdicts(chosen=affine, judged=judged)
        if len(affine) and _columns_add_up(context, affine, judged, other)
        else None
    )


def are_affine(sampled: Sampler, noise: Noise, plus: Tensor, minus: Tensor) -> Tensor:
    """Mask of outputs, (C, m), whose values on both sides of the point lie on a line with f(x), within the noise."""
    allowed = _noise_of_samples(noise, plus - minus, LARGEST_DEVIATION)
    return (plus + minus).sub_(sampled.value, alpha=2.0).abs_() <= allowed


def judge_affine(context: JudgingContext, chosen: Tensor, values: Tensor, distance: Tensor) -> tuple[Judged, Tensor]:
    """Judge the entries of the `chosen` column groups by one step each.

    `values` (C, m) are the outputs after the steps `distance`, (C, 1) or (C, m). Return the verdicts, and the mask
    (C, m) of entries that certainly have the claimed slope. The verdicts outside the mask mean nothing.
    """
    is_all = len(chosen) == context.column_groups.count
    claimed, allowance = (
        context.claimed if is_all else context.claimed[chosen],
        of_column_groups(context.allowance, chosen),
    )
    parts, height = [], rows_at_once(claimed)
    for top in range(0, len(chosen), height):
        rows = slice(top, top + height)
        tolerance = part_of(allowance, rows, slice(None))
        parts.append(
            _judge_differences(
                values[rows] - context.sampled.value, distance[rows], claimed[rows], context.noise, tolerance
            )
        )
    if len(parts) == 1:
        return parts[0]
    return stacked([judged for judged, _ in parts]), torch.cat([certain for _, certain in parts])


def _affine_by_input(context: JudgingContext, direction: Tensor) -> Tensor:
    """Return the column groups of the inputs in which f is affine along one random direction; (k,)."""
    sampled, blocks = context.sampled, context.sampled.inputs
    distance = torch.stack([zero_outside(direction, block.coordinates) for block in blocks]).mul_(_FARTHER * LONG_STEP)
    values = sampled.value.new_empty(2, len(blocks), len(sampled.value))
    evaluate(sampled, torch.cat([sampled.point + distance, sampled.point - distance]), values.flatten(0, 1))
    is_affine = are_affine(sampled, context.noise, values[0], values[1]).all(dim=1).tolist()
    if all(is_affine):
        return torch.arange(context.column_groups.count, device=direction.device)
    mask = torch.zeros(context.column_groups.count, dtype=torch.bool, device=direction.device)
    for block in compress(blocks, is_affine):
        mask[context.column_groups.colour[block.coordinates]] = True
    return mask.nonzero().squeeze(1)


def _judged_by_one_step(context: JudgingContext, chosen: Tensor) -> tuple[Judged, Tensor]:
    """Return the verdicts on some column groups by one step, and the mask (C,) of groups with the claimed slopes."""
    values, distance = sample_one_step(context.sampled, context.column_groups, chosen, context.lengths.step * LONG_STEP)
    judged, certain = judge_affine(context, chosen, values, distance)
    return judged, certain.all(dim=1)


def _columns_add_up(context: JudgingContext, chosen: Tensor, judged: Judged, direction: Tensor) -> bool:
    """True if J·direction, summed from these columns, is the directional difference along their part of it."""
    if len(chosen) < context.column_groups.count:
        is_chosen = torch.zeros(context.column_groups.count, dtype=torch.bool, device=chosen.device)
        is_chosen[chosen] = True
        direction = torch.where(is_chosen[context.column_groups.colour], direction, 0.0)
    weights = spread_to_entries(context.column_groups, direction)
    weights = weights if len(chosen) == context.column_groups.count else weights[chosen]
    total = Estimate(value=(judged.numeric * weights).sum(dim=0), bar=(judged.bar * weights.abs()).sum(dim=0))
    every = torch.ones_like(context.sampled.value, dtype=torch.bool)
    return not any_set(sum_differs_near_point(context.sampled, context.noise, direction, total, every))


def _judge_differences(
    rise: Tensor, distance: Tensor, claimed: Tensor, noise: Noise, allowance: EntryTolerance
) -> tuple[Judged, Tensor]:
    """Judge the claims by the differences `rise`, f(x + h) - f(x) with h = `distance`, (C, m); see `judge_affine`."""
    bar = _noise_of_samples(noise, rise, 2 * NOISE_FACTOR).div_(distance)  # a central one is divided by 2 h
    estimate = Estimate(value=rise.div_(distance), bar=bar)
    off = (claimed - estimate.value).abs_() > allowance.atol.add_(bar)
    found = screened(claimed, allowance, estimate, off)
    return found.judged, found.doubt.logical_not_()


def _noise_of_samples(noise: Noise, rise: Tensor, times: float) -> Tensor:
    """Return `times` a noise bound for samples up to |rise| from f(x): larger samples have more noise."""
    return torch.addcmul(times * noise.level, rise.abs(), times * noise.relative_level)
