"""Derivatives along directions: J·v from differences, beside sums of measured entries, and of smooth pieces nearby."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Generator, Tensor

from gradverify.core.decide.context import JudgingContext, along_line, focused
from gradverify.core.decide.ladder import judge_along_line
from gradverify.core.decide.stairs import excuse_stairs
from gradverify.core.decide.verdict import Code, Judged, of_outputs
from gradverify.core.estimate.column_groups import spread_to_entries
from gradverify.core.estimate.richardson import DEPTH, extrapolated
from gradverify.core.estimate.samples import BAR_FACTOR, NOISE_FACTOR, Estimate, sharpest
from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler, is_double, outputs_near
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.limits import HELD, portions
from gradverify.core.model.magnitudes import any_set
from gradverify.core.tuning import SMALL_PART

LONG_STEP = 2.0**-6  # of the length scale: a step so large that noise hardly matters
FIRST = 2.0**-12  # first step along a direction, relative to the length scale
CLOSER_STEPS = (2.0**-14, 2.0**-26, 2.0**-34)  # first steps if larger ones are too long
SUM_ROUNDING = 1e-9  # rounding error of a sum over the entries of a row, relative to its terms
DISTANCE = 2.0**-18  # of nearby points from the point, relative to the length scale
RANKS = 128  # ranks among other inputs that some inputs are put at
STEP = 2.0**-30  # of the differences at nearby points, short enough to stay inside one smooth piece


def directional_derivative(sampled: Sampler, noise: Noise, direction: Tensor, first: float) -> Estimate:
    """Return J·direction with its error bar, (m,), from three steps, `first` the largest; costs 6 forwards.

    Steps are multiples of `direction`. Each point is evaluated in a call of its own, because the result is compared
    with estimates that may come from batched calls.
    """
    steps = [first * 0.5**k for k in range(DEPTH)]
    distances = (*steps, *(-step for step in steps))
    outputs = torch.stack([outputs_near(sampled, distance * direction) for distance in distances])
    widths = 2 * torch.tensor(steps, dtype=outputs.dtype, device=outputs.device).unsqueeze(1)
    value, bar = torch.empty_like(outputs[0]), torch.empty_like(outputs[0])
    for part in portions(value):
        difference = (outputs[:DEPTH, part] - outputs[DEPTH:, part]).div_(widths).unsqueeze(0)
        estimate = extrapolated(difference, noise.level[part] * (NOISE_FACTOR / steps[-1]))
        value[part], bar[part] = estimate.value[0], estimate.bar[0]
    return Estimate(value=value, bar=bar)


def sum_differs_near_point(
    sampled: Sampler, noise: Noise, direction: Tensor, total: Estimate, judged: Tensor
) -> Tensor:
    """Mask of the outputs in `judged` whose derivative along `direction` differs from `total` at any step; (m,).

    A kink between the point and the end of a step looks like a missing dependence, but a missing dependence shows at
    every step. Of the closer steps, the one with the smallest bar decides: bars are wide across a kink and where
    rounding dominates. Closer steps whose bar exceeds the difference found with the first step do not overrule it.
    """
    at_first = directional_derivative(sampled, noise, direction, FIRST)
    off = differs(at_first, total) & judged
    if not any_set(off):
        return off
    closer = []
    for first in CLOSER_STEPS:
        if first < torch.finfo(torch.float32).eps:  # all samples may round to the same number
            noise = replace(noise, level=noise.upper_level)
        closer.append(directional_derivative(sampled, noise, direction, first))
    nearest = sharpest(closer)
    resolved = BAR_FACTOR * (nearest.bar + total.bar) < (at_first.value - total.value).abs()
    return off & (differs(nearest, total) | ~resolved)


def differs(estimate: Estimate, total: Estimate) -> Tensor:
    """Mask of derivatives that differ from `total` by more than their bars allow; (m,)."""
    allowed = BAR_FACTOR * (estimate.bar + total.bar) + SUM_ROUNDING * total.value.abs()
    return (estimate.value - total.value).abs() > allowed


def directional_derivatives_at(
    sampled: Sampler, places: Iterable[Tensor], directions: Sequence[Tensor], step: float = STEP
) -> Tensor:
    """Return the derivatives along q directions at the N points `sampled.point + place`, (N, q, m).

    `step` is a multiple of the directions. Costs q + 1 forwards per point.
    """
    count = len(directions) + 1
    points_at_once = max(1, HELD // (count * (sampled.point.numel() + sampled.value.numel())))
    derivatives, remaining = [], iter(places)
    while batch := list(islice(remaining, points_at_once)):
        centres = torch.stack(batch) + sampled.point
        points = torch.stack([centres, *(centres + step * direction for direction in directions)], dim=1)
        values = sampled.value.new_empty(len(batch), count, sampled.value.numel())
        evaluate(sampled, points.flatten(0, 1), values.flatten(0, 1))
        derivatives.append((values[:, 1:] - values[:, :1]) / step)
    return torch.cat(derivatives)


def at_ranks(placed: Tensor, others: Tensor, ranks: int, generator: Generator) -> Iterator[Tensor]:
    """Yield displacements that put the coordinates `placed` at up to `ranks` + 1 ranks among the `others`; each (n,).

    The others, a mask (n,) as `placed`, are spread from -1 to 1 in random order, and the rest is at -1. The placed ones
    become the smallest of all, then the second smallest, and so on, a little apart from each other.
    """
    count = int(others.sum())
    order = torch.zeros(others.shape, dtype=torch.float64, device=others.device)
    order[others] = torch.randperm(count, generator=generator).to(order)
    for rank in torch.linspace(0, count, min(count + 1, ranks + 1)).round().tolist():
        between = rank - 0.5 + SMALL_PART / 2 * random_magnitudes(torch.ones_like(order), generator)
        yield 2.0 * torch.where(placed, between, order) / max(1, count) - 1.0


def columns_do_not_add_up(context: JudgingContext, chosen: Tensor, judged: Judged, generator: Generator) -> Tensor:
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
    generator = Generator().manual_seed(len(chosen))
    reach = 2 * near.lengths.step  # no input moves less than on the ladder of its own column
    direction = _moving(near, chosen, random_magnitudes(reach, generator).abs())
    wrong = torch.where(accused, near.claimed[chosen] - judged.numeric, 0.0)
    total = sum_along(near, chosen, judged, direction / direction.max())
    error = sum_along(near, chosen, replace(judged, numeric=wrong), direction / direction.max()).value
    line, first = along_line(near, direction, total.value + error), places.new_zeros(1)
    found = excuse_stairs(line, first, judge_along_line(line))
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
    return torch.where(torch.isin(context.column_groups.group_of, chosen), direction, 0.0)


def sum_along(context: JudgingContext, chosen: Tensor, judged: Judged, direction: Tensor) -> Estimate:
    """Return the derivative along a direction (n,) that the entries of the chosen column groups give; (m,)."""
    by = spread_to_entries(context.column_groups, direction)
    by = by if len(chosen) == context.column_groups.count else by[chosen]
    value, bar = (judged.numeric * by).nan_to_num_(0.0), (judged.bar * by.abs()).nan_to_num_(torch.inf)
    if len(value) == 1:
        return Estimate(value=value[0], bar=bar[0])
    return Estimate(value=value.sum(dim=0), bar=bar.sum(dim=0))
