"""Outputs at points displaced along column groups, by one step or by several."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate import richardson
from gradverify.core.estimate.column_groups import ColumnGroups, members, value_of_column
from gradverify.core.estimate.samples import Samples, Steps
from gradverify.core.forward.batching import evaluate, evaluate_in_one_call, points_on_line
from gradverify.core.forward.noise import SAMPLE_DISTANCES, Noise, first_direction, measure, noise_from_samples
from gradverify.core.forward.sampler import Sampler, first_linear, representable
from gradverify.core.forward.step_noise import with_stairs
from gradverify.core.model.limits import AT_ONCE, FEW_INPUTS
from gradverify.core.model.magnitudes import LengthScales, any_set
from gradverify.core.tuning import LOST_UNITS
from gradverify.deadline import OutOfTime, require_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Stencil:
    """Outputs at x ± h for C groups and K steps, from which samples of any of them are made."""

    chosen: Tensor  # (C,) index of each group
    lengths: Tensor  # (2 K, C, 1 or m) h of the column of each entry
    values: Tensor  # (2 K, C, m)


def sample(sampled: Sampler, column_groups: ColumnGroups, chosen: Tensor, steps: Steps) -> Samples:
    """Evaluate the forward at x ± h for every chosen group (C,) and step."""
    stencil = sample_stencil(sampled, column_groups, chosen, steps)
    require_time(sampled.problem.deadline)  # else some may be NaN
    return samples_of(sampled, stencil)


def sample_stencil(sampled: Sampler, column_groups: ColumnGroups, chosen: Tensor, steps: Steps) -> Stencil:
    """Evaluate the forward at x ± h for every chosen group (C,) and step; NaN for those not reached in time."""
    count = 2 * len(steps.factors)
    values = sampled.value.new_empty(count, len(chosen), sampled.value.numel())
    parts = _steps_per_call(count, len(chosen) * (sampled.point.numel() + sampled.value.numel()))
    moving, groups = members(column_groups, chosen)
    lengths = []
    for part in parts:
        moved = _stepped(sampled, moving, steps, part)
        step_lengths = _step_lengths(sampled, moving, steps, part, moved)
        lengths.append(_of_columns(column_groups, chosen, moving, step_lengths))
        points = _displaced(sampled, moving, groups, moved, len(chosen))
        with suppress(OutOfTime):
            evaluate(sampled, points.flatten(0, 1), values[part].flatten(0, 1), order=_by_group(points))
    return Stencil(chosen=chosen, lengths=torch.cat(lengths), values=values)


def sample_one_step(
    sampled: Sampler, column_groups: ColumnGroups, chosen: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """Evaluate the forward at x + h for every chosen group (C,); `step` (n,) is h of each coordinate.

    Returns the outputs, (C, m), and the displacement of the column of each entry, (C, 1) or (C, m).
    """
    moving, groups = members(column_groups, chosen)
    moved = representable(sampled, moving, sampled.point[moving] + step[moving])
    points = _displaced(sampled, moving, groups, moved.unsqueeze(0), len(chosen)).squeeze(0)
    values = sampled.value.new_empty(len(chosen), len(sampled.value))
    evaluate(sampled, points, values)
    return values, _of_columns(column_groups, chosen, moving, moved - sampled.point[moving])


def sample_stencil_beside(sampled: Sampler, steps: Steps, others: Tensor, count: int) -> tuple[Tensor, Stencil] | None:
    """Evaluate the forward at `others` (N, n) and at x ± h for each of the first coordinates and steps, in one call.

    Returns the outputs at `others`, (N, m), and the stencil; None if the points need a call each. The outputs may
    differ from those of single calls by rounding, see `evaluate_in_one_call`.
    """
    coordinates = torch.arange(count, device=sampled.point.device)
    moved = _stepped(sampled, coordinates, steps, slice(None))
    displaced = _displaced(sampled, coordinates, coordinates, moved, len(coordinates))
    points = torch.cat([others, displaced.flatten(0, 1)])
    values = sampled.value.new_empty(len(points), sampled.value.numel())
    if not evaluate_in_one_call(sampled, points, values, LOST_UNITS):
        return None
    stencil = Stencil(
        chosen=coordinates,
        lengths=_step_lengths(sampled, coordinates, steps, slice(None), moved).unsqueeze(2),
        values=values[len(others) :].view(2 * len(steps.factors), count, values.shape[1]),
    )
    return values[: len(others)], stencil


def samples_of(sampled: Sampler, stencil: Stencil) -> Samples:
    """Return the samples that a stencil holds."""
    half = len(stencil.values) // 2
    lengths, values = (each.transpose(0, 1) for each in (stencil.lengths, stencil.values))
    return Samples(
        chosen=stencil.chosen,
        value=sampled.value,
        forth=lengths[:, :half],
        back=lengths[:, half:],
        plus=values[:, :half],
        minus=values[:, half:],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialSamples:
    """The noise, and the first steps of each input if one call gave both."""

    noise: Noise
    # Of each single input but the cotangents, by the steps of `richardson`; None if the inputs are many or large.
    stencil: Stencil | None = None


def initial_samples(sampled: Sampler, lengths: LengthScales, seed: int) -> InitialSamples:
    """Measure the noise and, if 8 + 6 n points go through one call, sample the first steps of each input.

    Inputs in which the function is linear are left out.
    """
    noise, stencil = None, None
    inputs, outputs = sampled.point.numel(), sampled.value.numel()
    points = len(SAMPLE_DISTANCES) + 2 * richardson.DEPTH * inputs
    if inputs < FEW_INPUTS and points * (inputs + outputs) <= AT_ONCE:
        direction = first_direction(sampled, lengths, seed)
        line = points_on_line(sampled, direction, SAMPLE_DISTANCES)
        found = sample_stencil_beside(sampled, richardson.steps(lengths), line, first_linear(sampled))
        if found is not None:
            on_line, stencil = found
            noise = noise_from_samples(sampled, direction, on_line)
    noise = noise or measure(sampled, lengths, seed)
    if sampled.narrowing_eps or any_set(
        noise.upper_level > noise.level
    ):  # casts, or noise that vanishes at smaller spacings
        noise = with_stairs(noise, sampled, lengths)
    return InitialSamples(noise=noise, stencil=stencil)


def _displaced(sampled: Sampler, moving: Tensor, groups: Tensor, moved: Tensor, count: int) -> Tensor:
    """Return the points of `count` groups, with the coordinates `moving` (k,) of `groups` (k,) set to `moved` (S, k).

    Shape (S, count, n).
    """
    points = sampled.point.expand(len(moved), count, -1).clone()
    points[:, groups, moving] = moved
    return points


def _of_columns(column_groups: ColumnGroups, chosen: Tensor, moving: Tensor, lengths: Tensor) -> Tensor:
    """Return the lengths (..., k) of the coordinates `moving` at the column of each entry; (..., C, 1 or m)."""
    every = lengths.new_zeros(*lengths.shape[:-1], len(column_groups.group_of))
    every[..., moving] = lengths
    return value_of_column(column_groups, chosen, every)


def _by_group(points: Tensor) -> list[int]:
    """Return the order that completes one group of the points (S, C, n), flattened to (S C, n), after the other."""
    steps, groups = points.shape[:2]
    return [step * groups + group for group in range(groups) for step in range(steps)]


def _signed_factors(steps: Steps) -> Tensor:
    return torch.cat([steps.factors, -steps.factors]).unsqueeze(1)


def _stepped(sampled: Sampler, columns: Tensor, steps: Steps, part: slice) -> Tensor:
    """Return the values of coordinates after some of the steps, forth and back; (S, k)."""
    moved = torch.addcmul(sampled.point[columns], _signed_factors(steps)[part], steps.base[columns])
    return representable(sampled, columns, moved)


def _step_lengths(sampled: Sampler, columns: Tensor, steps: Steps, part: slice, moved: Tensor) -> Tensor:
    """Return the lengths of these steps, as far as the dtype can hold them; (S, k)."""
    return (moved - sampled.point[columns]).mul_(_signed_factors(steps)[part].sign())


def _steps_per_call(count: int, numbers: int) -> list[slice]:
    """Return the steps whose points go through one call: as many as are small together, else one at a time."""
    size = min(count, max(1, AT_ONCE // max(1, numbers)))
    return [slice(start, start + size) for start in range(0, count, size)]
