"""Samples of forward at points displaced along column groups, by one step or by many."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate import richardson
from gradverify.core.estimate.column_groups import (
    ColumnGroups,
    GroupKind,
    column_or_member,
    is_complete_for,
    members,
    owned,
)
from gradverify.core.estimate.samples import Samples, Steps
from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.ecnoise import PLACES, points_on_line
from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.noise import Noise, first_direction, measure, noise_from_samples
from gradverify.core.forward.sampler import Sampler, is_double, representable
from gradverify.core.forward.step_noise import of_stairs
from gradverify.core.model.memory import FEW

_AT_ONCE = 1 << 17  # numbers in the points of one call: beyond them a call of its own costs nothing
_SMALL = 1 << 16  # numbers in all points of the call and their outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Stencil:
    """The outputs at x ± h for C moves and K steps, from which samples of any of them are made."""

    chosen: Tensor  # (C,) which moves
    steps: Steps
    lengths: Tensor  # (2 K, L) how far coordinates moved, forth and back; empty of direct moves, which make them again
    spot: Tensor  # (C, 1 or m) whose of these lengths counts for each entry
    values: Tensor  # (2 K, C, m)


def sample(sampled: Sampler, column_groups: ColumnGroups, chosen: Tensor, steps: Steps) -> Samples:
    """Evaluate the forward at x ± h for every chosen move (C,) and step."""
    return samples_of(sampled, sample_stencil(sampled, column_groups, chosen, steps), slice(None), slice(None))


def sample_stencil(sampled: Sampler, column_groups: ColumnGroups, chosen: Tensor, steps: Steps) -> Stencil:
    """Evaluate the forward at x ± h for every chosen move (C,) and step."""
    count = 2 * len(steps.factors)
    values = sampled.value.new_empty(count, len(chosen), sampled.value.numel())
    parts = _parts(count, len(chosen) * (sampled.point.numel() + sampled.value.numel()))
    if column_groups.direct:
        for some in parts:
            evaluate(sampled, _moved(sampled, slice(None), steps, some), values[some].flatten(0, 1))
        return Stencil(
            chosen=chosen, steps=steps, lengths=values[:, :0, 0], spot=column_groups.column_of[:, :0], values=values
        )
    inside, place = members(column_groups, chosen)
    spot, kept = _spots(sampled, column_groups, chosen, inside)
    lengths = []
    for some in parts:
        moved = _moved(sampled, inside, steps, some)
        far = _far(sampled, inside, steps, some, moved)
        lengths.append(far if kept is None else _of_every(sampled, inside, far, kept))
        points = _displaced(sampled, inside, place, moved, len(chosen))
        evaluate(sampled, points.flatten(0, 1), values[some].flatten(0, 1))
    return Stencil(chosen=chosen, steps=steps, lengths=torch.cat(lengths), spot=spot, values=values)


def sample_one_step(
    sampled: Sampler, column_groups: ColumnGroups, chosen: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """Evaluate the forward at x + h for every chosen move (C,); `step` (n,) is h of each coordinate.

    Returns the outputs, (C, m), and how far the coordinate that owns each entry has gone, (C, 1) or (C, m).
    """
    inside, place = members(column_groups, chosen)
    there = representable(sampled, inside, sampled.point[inside] + step[inside])
    points = _displaced(sampled, inside, place, there.unsqueeze(0), len(chosen)).squeeze(0)
    far = torch.zeros_like(sampled.point)
    far[inside] = there - sampled.point[inside]
    values = sampled.value.new_empty(len(chosen), len(sampled.value))
    evaluate(sampled, points, values)
    return values, owned(column_groups, chosen, far)


def sample_stencil_beside(sampled: Sampler, steps: Steps, others: Tensor) -> tuple[Tensor, Stencil]:
    """Evaluate the forward at `others` (N, n) and at x ± h for every coordinate alone and every step, all in one call.

    Returns the outputs at the others, (N, m), beside the walk. Roughly: see `evaluate`.
    """
    every, count = torch.arange(len(sampled.point), device=sampled.point.device), 2 * len(steps.factors)
    moved = _moved(sampled, every, steps, slice(None))
    points = torch.cat([others, _displaced(sampled, every, every, moved, len(every)).flatten(0, 1)])
    values = sampled.value.new_empty(len(points), sampled.value.numel())
    evaluate(sampled, points, values, roughly=True)
    stencil = Stencil(
        chosen=every,
        steps=steps,
        lengths=_far(sampled, every, steps, slice(None), moved),
        spot=every.unsqueeze(1),
        values=values[len(others) :].view(count, len(every), values.shape[1]),
    )
    return values[: len(others)], stencil


def stencil_by_input(sampled: Sampler, steps: Steps, column_of: Tensor, values: Tensor) -> Stencil:
    """Return the walk of one move per input as some of the outputs see it, where they were `values` (2 K, C, k).

    `owner` (C, k) are the coordinates that those outputs are due to.
    """
    every, inside = slice(None), column_of.flatten()
    return Stencil(
        chosen=torch.arange(len(column_of), device=column_of.device),
        steps=steps,
        lengths=_far(sampled, inside, steps, every, _moved(sampled, inside, steps, every)),
        spot=torch.arange(len(inside), device=column_of.device).view_as(column_of),
        values=values,
    )


def samples_of(sampled: Sampler, stencil: Stencil, rows: slice, outputs: slice) -> Samples:
    """Return the samples of some of the moves and outputs; `sampled` looks at all of those that were walked."""
    half = len(stencil.steps.factors)
    lengths = _lengths(sampled, stencil, rows, outputs, slice(None)).transpose(0, 1)
    values = stencil.values[:, rows, outputs].transpose(0, 1)
    return Samples(
        chosen=stencil.chosen[rows],
        forth=lengths[:, :half],
        back=lengths[:, half:],
        plus=values[:, :half],
        minus=values[:, half:],
    )


def first_steps(sampled: Sampler, stencil: Stencil, rows: slice, outputs: slice) -> Tensor:
    """Return how far the coordinate that owns each entry has gone by the largest step; (C, 1) or (C, m)."""
    return _lengths(sampled, stencil, rows, outputs, slice(0, 1))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialSamples:
    """What the first call of the forward has shown."""

    noise: Noise
    stencil: Stencil | None = None  # of each input alone, by the steps of `richardson`; None where there are too many


def opening(sampled: Sampler, lengths: LengthScales, seed: int) -> InitialSamples:
    """Measure the noise and, where the inputs are few and small, take the first steps with each; costs 8 + 6 n calls.

    Where the forward can be vectorised, all of it is one call.
    """
    if sampled.narrow():
        return InitialSamples(noise=of_stairs(measure(sampled, lengths, seed), sampled, lengths))
    inputs, outputs = sampled.point.numel(), sampled.value.numel()
    points = len(PLACES) + 2 * richardson.DEPTH * inputs
    if inputs >= FEW or points * (inputs + outputs) > _SMALL:
        return InitialSamples(noise=measure(sampled, lengths, seed))
    direction = first_direction(sampled, lengths, seed)
    line = points_on_line(sampled, direction, PLACES)
    heard, stencil = sample_stencil_beside(sampled, richardson.steps(lengths), line)
    return InitialSamples(noise=noise_from_samples(sampled, direction, heard), stencil=stencil)


def _displaced(sampled: Sampler, inside: Tensor, place: Tensor, moved: Tensor, count: int) -> Tensor:
    """Return the points of so many moves where coordinates `inside` (k,) of the moves `place` are at `moved` (S, k)."""
    points = sampled.point.expand(len(moved), count, -1).clone()
    points[:, place, inside] = moved
    return points


def _spots(
    sampled: Sampler, column_groups: ColumnGroups, chosen: Tensor, inside: Tensor
) -> tuple[Tensor, Tensor | slice | None]:
    """Return whose length counts for each entry, (C, 1 or m), and of which coordinates they are kept.

    None for those `inside`, which have moved.
    """
    if column_groups.kind is GroupKind.SINGLE:
        return torch.arange(len(chosen), device=chosen.device).unsqueeze(1), None
    column_of = column_or_member(column_groups, slice(None) if len(chosen) == column_groups.count else chosen)
    if is_complete_for(column_groups, chosen):
        return torch.searchsorted(inside, column_of.contiguous()), None
    if column_of.numel() >= len(sampled.point):
        return column_of, slice(None)
    return torch.arange(column_of.numel(), device=column_of.device).view_as(column_of), column_of.reshape(-1)


def _of_every(sampled: Sampler, inside: Tensor, far: Tensor, kept: Tensor | slice) -> Tensor:
    """Return how far all coordinates, or those kept, have moved, from those that have; (S, L)."""
    every = far.new_zeros(len(far), len(sampled.point))
    every[:, inside] = far
    return every if isinstance(kept, slice) else every.index_select(1, kept)


def _signed(steps: Steps) -> Tensor:
    return torch.cat([steps.factors, -steps.factors]).unsqueeze(1)


def _moved(sampled: Sampler, inside: Tensor | slice, steps: Steps, some: slice) -> Tensor:
    """Return where coordinates end up after some of the steps, forth and back; (S, k)."""
    moved = torch.addcmul(sampled.point[inside], _signed(steps)[some], steps.base[inside])
    if not isinstance(inside, slice):
        return representable(sampled, inside, moved)
    if is_double(sampled):
        return moved  # numbers of coordinates are as large as they are
    return representable(sampled, torch.arange(*inside.indices(len(sampled.point)), device=moved.device), moved)


def _far(sampled: Sampler, inside: Tensor | slice, steps: Steps, some: slice, moved: Tensor) -> Tensor:
    """Return how far they have gone, in their direction."""
    return (moved - sampled.point[inside]).mul_(_signed(steps)[some].sign())


def _parts(count: int, numbers: int) -> list[slice]:
    """Return steps whose points go through one call: as many as are small together, else one after the other."""
    size = min(count, max(1, _AT_ONCE // max(1, numbers)))
    return [slice(start, start + size) for start in range(0, count, size)]


def _lengths(sampled: Sampler, stencil: Stencil, rows: slice, outputs: slice, some: slice) -> Tensor:
    """Return some of the 2 K steps of the coordinate that owns each entry, (S, C, 1) or (S, C, m)."""
    if not stencil.spot.shape[1]:  # of a direct move, made again: they are as large as the samples
        moved = _moved(sampled, outputs, stencil.steps, some)
        return _far(sampled, outputs, stencil.steps, some, moved).unsqueeze(1)
    spot = stencil.spot[rows] if stencil.spot.shape[1] == 1 else stencil.spot[rows, outputs]
    return stencil.lengths[some].index_select(1, spot.reshape(-1)).view(-1, *spot.shape)
