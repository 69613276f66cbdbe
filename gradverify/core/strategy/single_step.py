"""Columns measured by a single step: a difference to one side where the function is affine, else a central one.

Four samples along a random direction show whether the function is affine or smooth along it, and the slopes that the
measured entries have to add up to. Groups with an entry that the step leaves in doubt are sampled at more steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.decide.compare import differs_clearly, judge_smooth, largest_resolving_bar
from gradverify.core.decide.context import JudgingContext, of_column_groups
from gradverify.core.decide.directional import FIRST, LONG_STEP, differs, sum_along
from gradverify.core.decide.screen import Look, Screened, joined_looks, of_groups, screened
from gradverify.core.decide.verdict import replaced
from gradverify.core.estimate.column_groups import spread_to_entries, value_of_column
from gradverify.core.estimate.richardson import LARGEST_DEVIATION
from gradverify.core.estimate.samples import NOISE_FACTOR, Estimate, Steps, difference_noise, input_rounding_noise
from gradverify.core.estimate.stencil import sample_one_step, sample_stencil, samples_of
from gradverify.core.forward.batching import on_line
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler, first_linear, is_double
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.limits import chunks, portion
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.tuning import ALIKE, SEVERAL
from gradverify.deadline import OutOfTime

# Distances along the direction, in length scales. Curvature below the noise at the long one is far below it at
# LONG_STEP; variation on a shorter length shows at FIRST.
_LONG = 4.0 * LONG_STEP
_SHORTEST, _LONGEST = 2.0**-17, 2.0**-11  # steps of smooth functions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Samples of the forward along a direction."""

    direction: Tensor  # (n,)
    chosen: Tensor  # (C,) the groups that it displaces
    long: Tensor  # (2, m) outputs at _LONG, on both sides
    short: Tensor  # (2, m) outputs at FIRST
    is_affine: bool
    curvature: Tensor  # (m,) the slope changes by it times the square of the distance; 0 if the function is affine


def sample_single_steps(context: JudgingContext, *, only_cotangents: bool) -> Look | None:
    """Judge the column groups that a single step of each suffices for: their entries match or clearly do not.

    None if there are none, or if time runs out. With `only_cotangents`, a vjp is measured in the inputs in which it is
    linear.
    """
    generator, looks = torch.Generator().manual_seed(context.settings.seed + 2), []
    direction = random_magnitudes(context.lengths.step, generator)
    try:
        moved = _inputs_moved_together(context, only_cotangents=only_cotangents)
        lines = [_line(context, zero_outside(direction, coordinates), coordinates) for coordinates in moved]
        looks += [look for line in lines if (look := _by_differences(context, line)) is not None]
        if affine := [line.chosen for line in lines if line.is_affine]:
            parts = chunks(torch.cat(affine).sort().values, context.numbers_per_sample)
            looks += [(part, _judged_rises(context, part)) for part in parts]
    except OutOfTime:
        return None
    return _settled(context, lines, joined_looks(looks)) if looks else None


def _inputs_moved_together(context: JudgingContext, *, only_cotangents: bool) -> Iterator[Tensor | slice]:
    """Yield the coordinates that one direction moves: those of each input, or of all but the cotangents at once.

    Of a small Jacobian only the cotangents are tested if many points fit in one call, since a test costs calls. Of the
    others, only those are moved whose claims a step can resolve.
    """
    sampled, groups = context.sampled, context.column_groups
    own, small = first_linear(sampled), groups.count * context.numbers_per_sample < portion(context.claimed)
    if small and not only_cotangents and context.claimed.numel() and _saves_calls(sampled):
        chosen = torch.unique(groups.group_of[:own])
        chosen = chosen[_smallest_steps(context, chosen) <= _LONGEST]
        if len(chosen) >= SEVERAL:
            moved = torch.isin(groups.group_of, chosen)
            moved[own:] = False
            yield moved.nonzero().squeeze(1)
    for tensor in dict.fromkeys(block.tensor for block in sampled.inputs):  # of a complex one, both parts
        blocks = [block for block in sampled.inputs if block.tensor == tensor]
        start, stop = min(block.start for block in blocks), max(block.stop for block in blocks)
        if stop > start and (start >= own or not (only_cotangents or small)):
            yield slice(start, stop)


def _saves_calls(sampled: Sampler) -> bool:
    """True if one central difference of a column takes fewer calls than six samples, and no dtype rounds the step."""
    return is_double(sampled) and not sampled.vectorisation.shares_calls


def _line(context: JudgingContext, direction: Tensor, coordinates: Tensor | slice) -> _Line:
    """Return the samples along a direction that moves these inputs, and what they show."""
    noise, values = context.noise, on_line(context.sampled, direction, (_LONG, -_LONG, FIRST, -FIRST))
    bend = (values[0] + values[1]).sub_(context.sampled.value, alpha=2.0).abs_()
    is_affine = all_set(bend <= _noise_of_samples(noise, values[0] - values[1], LARGEST_DEVIATION))
    change = (values[0] - values[1]) / _LONG - (values[2] - values[3]) / FIRST
    return _Line(
        direction=direction,
        chosen=torch.unique(context.column_groups.group_of[coordinates]),
        long=values[:2],
        short=values[2:],
        is_affine=is_affine,
        curvature=torch.zeros_like(bend) if is_affine else change.abs_().div_(2 * _LONG**2),
    )


def _by_differences(context: JudgingContext, line: _Line) -> Look | None:
    """Judge column groups by a central difference each; None if the function is affine, or not smooth, along the line.

    None too if many points fit in one call, since six samples then take no more calls. The step is the smallest at
    which noise would not hide an error of the claims. What the difference is then off by the step has to be within
    their tolerance, or the group is left to more steps.
    """
    chosen = line.chosen
    if line.is_affine or not _saves_calls(context.sampled) or not _is_smooth(context, line):
        return None
    steps = _smallest_steps(context, chosen)
    chosen, steps = chosen[steps <= _LONGEST], steps[steps <= _LONGEST]
    if not len(chosen):
        return None
    of_group = context.claimed.new_zeros(context.column_groups.count).index_put_((chosen,), steps)
    base = context.lengths.step * of_group[context.column_groups.group_of]
    return joined_looks(
        [
            (part, _judged_differences(context, part, base, line.curvature))
            for part in chunks(chosen, 2 * context.numbers_per_sample)
        ]
    )


def _is_smooth(context: JudgingContext, line: _Line) -> bool:
    """True if outputs bend less at the short distance, by more than its 3/2-th power; a kink bends like the distance.

    False if an output is not finite, or does not move at the short distance although it does at the long one, as on a
    stair of a quantised forward.
    """
    value, scale = context.sampled.value, (FIRST / _LONG) ** 1.5
    far, near = ((plus + minus).sub_(value, alpha=2.0).abs_() for plus, minus in (line.long, line.short))
    bends_less = near <= scale * far + LARGEST_DEVIATION * context.noise.level
    moves, moves_further = ((values != value).any(dim=0) for values in (line.short, line.long))
    return all_set(bends_less & (moves | ~moves_further))


def _smallest_steps(context: JudgingContext, chosen: Tensor) -> Tensor:
    """Return the power of two for each column group (C,), in length scales, by which its step resolves all claims."""
    claimed, allowance = context.claimed[chosen], of_column_groups(context.allowance, chosen)
    lengths = value_of_column(context.column_groups, chosen, context.lengths.step)
    allowed = largest_resolving_bar(claimed.abs(), allowance)
    needed = (ALIKE * NOISE_FACTOR * context.noise.level / (allowed * lengths)).nan_to_num(torch.inf).amax(dim=1)
    return torch.exp2(torch.log2(needed.clamp(min=_SHORTEST)).ceil())


def _judged_differences(context: JudgingContext, chosen: Tensor, base: Tensor, curvature: Tensor) -> Screened:
    """Judge the entries of some column groups by a central difference each, with steps `base` (n,).

    A claim within its tolerance and one bar of noise matches, and its distance from the difference bounds what that is
    off by the step. Others are judged by the bound that the `curvature` (m,) of the slopes along the line gives.
    """
    sampled, claimed, groups = context.sampled, context.claimed[chosen], context.column_groups
    allowance = of_column_groups(context.allowance, chosen)
    steps = Steps(base=base, factors=torch.ones_like(base[:1]))
    samples = samples_of(sampled, sample_stencil(sampled, groups, chosen, steps))
    value, own = samples.difference, value_of_column(groups, chosen, context.lengths.own)
    bar = (difference_noise(context.noise, samples) + input_rounding_noise(sampled, samples, own)).squeeze(1)
    value = value.squeeze(1)
    allowed = allowance.atol.add_(claimed.abs(), alpha=allowance.rtol).add_(bar)
    close = (claimed - value).abs_() <= allowed
    found = screened(claimed, allowance, Estimate(value=value, bar=bar), close.logical_not_())
    by_step = curvature * value_of_column(groups, chosen, base.square() / context.lengths.step**3)
    judged = judge_smooth(claimed, Estimate(value=value, bar=bar + by_step), allowance, allowance.zero)
    agreeing = replace(found.judged, bar=bar + found.judged.error, allowed=allowed)
    return replace(found, judged=replaced(agreeing, found.doubt, judged))


def _judged_rises(context: JudgingContext, chosen: Tensor) -> Screened:
    """Judge the entries of some column groups by one step to one side each."""
    values, distance = sample_one_step(context.sampled, context.column_groups, chosen, context.lengths.step * LONG_STEP)
    claimed, allowance = context.claimed[chosen], of_column_groups(context.allowance, chosen)
    rise = values - context.sampled.value
    bar = _noise_of_samples(context.noise, rise, 2 * NOISE_FACTOR).div_(distance)
    estimate = Estimate(value=rise.div_(distance), bar=bar)
    return screened(claimed, allowance, estimate, (claimed - estimate.value).abs_() > allowance.atol.add_(bar))


def _settled(context: JudgingContext, lines: Sequence[_Line], look: Look) -> Look:
    """Return the column groups whose entries all match or clearly do not; the latter are left in doubt.

    All measured entries of an output have to add up to its slopes along a line, or no group of that line is returned.
    Groups that were not measured count with their claims.
    """
    chosen, first = look
    judged, kept = first.judged, (differs_clearly(first.judged) | ~first.doubt).all(dim=1)
    for line in lines:
        measured = torch.isin(line.chosen, chosen)
        if not any_set(measured):
            continue
        total = sum_along(context, chosen, judged, line.direction)
        if not all_set(measured):
            others = line.chosen[~measured]
            by = spread_to_entries(context.column_groups, line.direction)[others]
            total = replace(total, value=total.value + (context.claimed[others] * by).sum(dim=0))
        off = ~torch.isfinite(total.value)
        for distance, values in ((_LONG, line.long), (FIRST, line.short)):
            off |= differs(_slope(context.noise, values, distance, line.curvature), total)
        if any_set(off):
            kept &= ~torch.isin(chosen, line.chosen)
    # Entries were suspicious for their claims only.
    first = replace(first, bends=torch.zeros_like(first.bends))
    return (chosen, first) if all_set(kept) else (chosen[kept], of_groups(first, kept))


def _slope(noise: Noise, values: Tensor, distance: float, curvature: Tensor) -> Estimate:
    """Return the slopes (m,) along a line, from the outputs (2, m) at ± `distance`."""
    rise = (values[0] - values[1]) / 2
    bar = _noise_of_samples(noise, rise, NOISE_FACTOR).div_(distance).add_(curvature, alpha=distance**2)
    return Estimate(value=rise / distance, bar=bar)


def _noise_of_samples(noise: Noise, rise: Tensor, times: float) -> Tensor:
    """Return `times` a noise bound for samples up to |rise| from f(x): larger samples have more noise."""
    return torch.addcmul(times * noise.level, rise.abs(), times * noise.relative_level)
