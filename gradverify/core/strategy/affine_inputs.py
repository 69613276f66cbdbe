"""Inputs in which the function is affine: one sample settles each of their column groups."""

from __future__ import annotations

from itertools import compress

import torch
from torch import Tensor

from gradverify.core.decide.columns import Known
from gradverify.core.decide.compare import all_matching, judge_smooth
from gradverify.core.decide.context import JudgingContext, of_moves, part_of
from gradverify.core.decide.doubt import in_doubt, is_resolved_beside
from gradverify.core.decide.tolerance import ROUNDING, EntryTolerance
from gradverify.core.decide.verdict import Judged, of_rows, stacked
from gradverify.core.estimate.column_groups import of_columns
from gradverify.core.estimate.directional import differs_where_straight
from gradverify.core.estimate.samples import NOISE_FACTOR, Estimate
from gradverify.core.estimate.stencil import sample_one_step
from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.coordinates import Block
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.memory import chunks, rows_at_once

_WORTH = 1 << 15  # numbers in the points and outputs of all moves: with fewer, another call costs more than it saves
_STEP = 2.0**-6  # relative to the length scale
_FARTHER = 4.0  # times the step: what bends by noise over such a distance bends by much less over a step
_BEND = 16.0  # times the noise of an output may be in f(x+h) - 2 f(x) + f(x-h), which is heard in eight samples only
_NOISE = 2 * NOISE_FACTOR  # a rise from the point has twice the noise of one from side to side, per length


def affine_column_groups(context: JudgingContext, seed: int) -> Known | None:
    """Return the moves that are straight lines with the slope claimed, and the verdicts on their entries."""
    if context.column_groups.count * context.width < _WORTH:
        return None
    generator = torch.Generator().manual_seed(seed + 2)
    worth = _linear(context, scattered(context.lengths.step, generator))
    if not len(worth):
        return None
    looks = [_look(context, chosen) for chosen in chunks(worth, context.width)]
    lines = torch.cat([line for _, line in looks])
    judged = stacked([found for found, _ in looks]) if len(looks) > 1 else looks[0][0]
    if not all_set(lines):
        worth, judged = worth[lines], of_rows(judged, lines)
    other = scattered(context.lengths.step, generator)
    return Known(chosen=worth, judged=judged) if len(worth) and _add_up(context, worth, judged, other) else None


def are_affine(sampled: Sampler, noise: Noise, plus: Tensor, minus: Tensor) -> Tensor:
    """Tell which outputs on both sides of the point, (C, m), lie on a line with that at it, but for noise."""
    allowed = _reaching(noise, plus - minus, _BEND)
    return (plus + minus).sub_(sampled.value, alpha=2.0).abs_() <= allowed


def judge_affine(context: JudgingContext, chosen: Tensor, values: Tensor, far: Tensor) -> tuple[Judged, Tensor]:
    """Return the verdicts on the entries of some moves, and which of them have the slope claimed, beyond doubt; (C, m).

    `values` (C, m) are the outputs after one step by `far`, (C, 1) or (C, m). Verdicts on other entries say nothing.
    """
    every = len(chosen) == context.column_groups.count
    claimed, allowance = context.claimed if every else context.claimed[chosen], of_moves(context.allowance, chosen)
    looks, high = [], rows_at_once(claimed)
    for top in range(0, len(chosen), high):
        rows = slice(top, top + high)
        own = part_of(allowance, rows, slice(None))
        looks.append(_judge_rises(values[rows] - context.sampled.value, far[rows], claimed[rows], context.noise, own))
    if len(looks) == 1:
        return looks[0]
    return stacked([judged for judged, _ in looks]), torch.cat([fine for _, fine in looks])


def _linear(context: JudgingContext, direction: Tensor) -> Tensor:
    """Return the moves of the inputs in which the function is linear, as far as a random direction tells; (k,)."""
    sampled, blocks = context.sampled, context.sampled.inputs
    far = torch.stack([_within(direction, block) for block in blocks]).mul_(_FARTHER * _STEP)
    there = sampled.value.new_empty(2, len(blocks), len(sampled.value))
    evaluate(sampled, torch.cat([sampled.point + far, sampled.point - far]), there.flatten(0, 1))
    linear = are_affine(sampled, context.noise, there[0], there[1]).all(dim=1).tolist()
    if all(linear):
        return torch.arange(context.column_groups.count, device=direction.device)
    found = torch.zeros(context.column_groups.count, dtype=torch.bool, device=direction.device)
    for block in compress(blocks, linear):
        found[context.column_groups.colour[block.coordinates]] = True
    return found.nonzero().squeeze(1)


def _within(direction: Tensor, block: Block) -> Tensor:
    """Return the part of a direction (n,) that moves this input only."""
    mine = torch.zeros_like(direction)
    mine[block.coordinates] = direction[block.coordinates]
    return mine


def _look(context: JudgingContext, chosen: Tensor) -> tuple[Judged, Tensor]:
    """Return the verdicts on the entries of some moves by one step, and which moves are straight lines, (C,)."""
    values, far = sample_one_step(context.sampled, context.column_groups, chosen, context.lengths.step * _STEP)
    judged, fine = judge_affine(context, chosen, values, far)
    return judged, fine.all(dim=1)


def _add_up(context: JudgingContext, chosen: Tensor, judged: Judged, direction: Tensor) -> bool:
    """Tell whether the function rises along a direction, as far as it is these moves, as their entries add up to."""
    if len(chosen) < context.column_groups.count:
        moving = torch.zeros(context.column_groups.count, dtype=torch.bool, device=chosen.device)
        moving[chosen] = True
        direction = torch.where(moving[context.column_groups.colour], direction, 0.0)
    by = of_columns(context.column_groups, direction)
    by = by if len(chosen) == context.column_groups.count else by[chosen]
    total = Estimate(value=(judged.numeric * by).sum(dim=0), bar=(judged.bar * by.abs()).sum(dim=0))
    return not differs_where_straight(context.sampled, context.noise, direction, total)


def _judge_rises(
    rise: Tensor, far: Tensor, claimed: Tensor, noise: Noise, allowance: EntryTolerance
) -> tuple[Judged, Tensor]:
    bar = _reaching(noise, rise, _NOISE).div_(far)
    estimate, own = Estimate(value=rise.div_(far), bar=bar), claimed.abs()
    error = (claimed - estimate.value).abs_()
    close = error <= torch.add(bar, own, alpha=ROUNDING)
    if all_set(is_resolved_beside(bar, own, allowance).logical_and_(close)):  # as in most of a function that is linear
        return all_matching(estimate, error, own.mul_(allowance.rtol)), close
    judged = judge_smooth(claimed, estimate, allowance, allowance.zero)
    close.logical_or_(error <= allowance.atol.add_(bar))
    return judged, in_doubt(judged, close.logical_not(), own, allowance).logical_not_()


def _reaching(noise: Noise, rise: Tensor, times: float) -> Tensor:
    """Return so many times the noise of samples that may be larger than at the point: on a line, by half their rise."""
    return torch.addcmul(times * noise.level, rise.abs(), times * noise.share)
