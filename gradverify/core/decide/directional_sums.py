"""Tests of measured columns: J·v summed from their entries against differences of the forward along v."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, along_line, focused
from gradverify.core.decide.ladder import judge_by_ladder
from gradverify.core.decide.stairs import excuse_stairs
from gradverify.core.decide.verdict import Code, Judged, of_outputs
from gradverify.core.estimate.column_groups import spread_to_entries
from gradverify.core.estimate.directional import sum_differs_near_point
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.forward.sampler import is_double
from gradverify.core.model.generators import random_magnitudes


def columns_do_not_add_up(
    context: JudgingContext, chosen: Tensor, judged: Judged, generator: torch.Generator
) -> Tensor:
    """Mask of outputs whose measured entries do not give the derivative along a random direction; (m,).

    The direction displaces the column groups `chosen` (C,) only, whose verdicts are `judged`. Outputs with an entry
    that is not smooth are not tested. Costs 6 forwards, or 24 if the first steps do not agree.
    """
    direction = _moving(context, chosen, random_magnitudes(context.lengths.step, generator))
    total = sum_along(context, chosen, judged, direction)
    return sum_differs_near_point(context.sampled, context.noise, direction, total, are_smooth(judged))


def confirmed_along_line(context: JudgingContext, chosen: Tensor, judged: Judged, accused: Tensor) -> Tensor:
    """Mask of the outputs (m,) whose mismatches `accused` (C, m) one ladder of steps along a direction confirms.

    The direction displaces the column groups `chosen` (C,) only, whose verdicts are `judged`. The claims along it are
    the sum of the measured entries and of the errors of the accused ones. They must differ from what the ladder finds
    at any step, and these errors must be ten times as large as the distance of the measured entries' sum from it. Then
    no kink and no stair explains the mismatches.
    """
    outputs = accused.any(dim=0)
    outputs &= are_smooth(judged)
    confirmed, places = torch.zeros_like(outputs), outputs.nonzero().squeeze(1)
    if not len(places) or not is_double(context.sampled):  # other dtypes round the displacements
        return confirmed
    near, judged, accused = focused(context, places), of_outputs(judged, places), accused[:, places]
    generator = torch.Generator().manual_seed(len(chosen))
    direction = _moving(near, chosen, random_magnitudes(near.lengths.step, generator).abs())
    wrong = torch.where(accused, near.claimed[chosen] - judged.numeric, 0.0)
    total = sum_along(near, chosen, judged, direction / direction.max())
    error = sum_along(near, chosen, replace(judged, numeric=wrong), direction / direction.max()).value
    line, first = along_line(near, direction, total.value + error), places.new_zeros(1)
    found = excuse_stairs(line, first, judge_by_ladder(line, first))
    gap = (found.numeric[0] - total.value).abs()
    adds_up = (gap <= BAR_FACTOR * (found.bar[0] + total.bar)) & (error.abs() > BAR_FACTOR * (found.bar[0] + gap))
    confirmed[places] = (found.code[0] == Code.MISMATCH) & ~found.bent[0] & adds_up
    return confirmed


def are_smooth(judged: Judged) -> Tensor:
    """Mask of outputs whose entries are all smooth, so that J·v can be summed from them; (m,)."""
    return (((judged.code == Code.MATCH) | (judged.code == Code.MISMATCH)) & ~judged.bent).all(dim=0)


def _moving(context: JudgingContext, chosen: Tensor, direction: Tensor) -> Tensor:
    """Return the direction (n,) without the coordinates that are in no chosen column group."""
    if len(chosen) == context.column_groups.count:
        return direction
    return torch.where(torch.isin(context.column_groups.colour, chosen), direction, 0.0)


def sum_along(context: JudgingContext, chosen: Tensor, judged: Judged, direction: Tensor) -> Estimate:
    """Return the derivative along a direction (n,) that the entries of the chosen column groups give; (m,)."""
    by = spread_to_entries(context.column_groups, direction)
    by = by if len(chosen) == context.column_groups.count else by[chosen]
    value, bar = (judged.numeric * by).nan_to_num_(0.0), (judged.bar * by.abs()).nan_to_num_(torch.inf)
    if len(value) == 1:
        return Estimate(value=value[0], bar=bar[0])
    return Estimate(value=value.sum(dim=0), bar=bar.sum(dim=0))
