"""The way there: all moves by all steps, and the forward on both sides of the point."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.function.sampler import Sampler, is_double, representable
from gradverify.core.function.together import evaluate
from gradverify.core.numeric.moves import Kind, Moves, members, owned, owns_all, somebody
from gradverify.core.numeric.samples import Samples, Steps

_AT_ONCE = 1 << 17  # numbers in the points of one call: beyond them a call of its own costs nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The outputs at x ± h for C moves and K steps, from which samples of any of them are made."""

    chosen: Tensor  # (C,) which moves
    steps: Steps
    lengths: Tensor  # (2 K, L) how far coordinates moved, forth and back; empty of direct moves, which make them again
    spot: Tensor  # (C, 1 or m) whose of these lengths counts for each entry
    values: Tensor  # (2 K, C, m)


def sample(sampled: Sampler, moves: Moves, chosen: Tensor, steps: Steps) -> Samples:
    """Evaluate the forward at x ± h for every chosen move (C,) and step."""
    return samples_of(sampled, walked(sampled, moves, chosen, steps), slice(None), slice(None))


def walked(sampled: Sampler, moves: Moves, chosen: Tensor, steps: Steps) -> Walk:
    """Evaluate the forward at x ± h for every chosen move (C,) and step."""
    count = 2 * len(steps.factors)
    values = sampled.value.new_empty(count, len(chosen), sampled.value.numel())
    parts = _parts(count, len(chosen) * (sampled.point.numel() + sampled.value.numel()))
    if moves.direct:
        for some in parts:
            evaluate(sampled, _moved(sampled, slice(None), steps, some), values[some].flatten(0, 1))
        return Walk(chosen=chosen, steps=steps, lengths=values[:, :0, 0], spot=moves.owner[:, :0], values=values)
    inside, place = members(moves, chosen)
    spot, kept = _spots(sampled, moves, chosen, inside)
    lengths = []
    for some in parts:
        moved = _moved(sampled, inside, steps, some)
        far = _far(sampled, inside, steps, some, moved)
        lengths.append(far if kept is None else _of_every(sampled, inside, far, kept))
        points = _displaced(sampled, inside, place, moved, len(chosen))
        evaluate(sampled, points.flatten(0, 1), values[some].flatten(0, 1))
    return Walk(chosen=chosen, steps=steps, lengths=torch.cat(lengths), spot=spot, values=values)


def stepped(sampled: Sampler, moves: Moves, chosen: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate the forward at x + h for every chosen move (C,); `step` (n,) is h of each coordinate.

    Returns the outputs, (C, m), and how far the coordinate that owns each entry has gone, (C, 1) or (C, m).
    """
    inside, place = members(moves, chosen)
    there = representable(sampled, inside, sampled.point[inside] + step[inside])
    points = _displaced(sampled, inside, place, there.unsqueeze(0), len(chosen)).squeeze(0)
    far = torch.zeros_like(sampled.point)
    far[inside] = there - sampled.point[inside]
    values = sampled.value.new_empty(len(chosen), len(sampled.value))
    evaluate(sampled, points, values)
    return values, owned(moves, chosen, far)


def walked_beside(sampled: Sampler, steps: Steps, others: Tensor) -> tuple[Tensor, Walk]:
    """Evaluate the forward at `others` (N, n) and at x ± h for every coordinate alone and every step, all in one call.

    Returns the outputs at the others, (N, m), beside the walk. Roughly: see `evaluate`.
    """
    every, count = torch.arange(len(sampled.point), device=sampled.point.device), 2 * len(steps.factors)
    moved = _moved(sampled, every, steps, slice(None))
    points = torch.cat([others, _displaced(sampled, every, every, moved, len(every)).flatten(0, 1)])
    values = sampled.value.new_empty(len(points), sampled.value.numel())
    evaluate(sampled, points, values, roughly=True)
    walk = Walk(
        chosen=every,
        steps=steps,
        lengths=_far(sampled, every, steps, slice(None), moved),
        spot=every.unsqueeze(1),
        values=values[len(others) :].view(count, len(every), values.shape[1]),
    )
    return values[: len(others)], walk


def walk_by_input(sampled: Sampler, steps: Steps, owner: Tensor, values: Tensor) -> Walk:
    """Return the walk of one move per input as some of the outputs see it, where they were `values` (2 K, C, k).

    `owner` (C, k) are the coordinates that those outputs are due to.
    """
    every, inside = slice(None), owner.flatten()
    return Walk(
        chosen=torch.arange(len(owner), device=owner.device),
        steps=steps,
        lengths=_far(sampled, inside, steps, every, _moved(sampled, inside, steps, every)),
        spot=torch.arange(len(inside), device=owner.device).view_as(owner),
        values=values,
    )


def _displaced(sampled: Sampler, inside: Tensor, place: Tensor, moved: Tensor, count: int) -> Tensor:
    """Return the points of so many moves where coordinates `inside` (k,) of the moves `place` are at `moved` (S, k)."""
    points = sampled.point.expand(len(moved), count, -1).clone()
    points[:, place, inside] = moved
    return points


def _spots(sampled: Sampler, moves: Moves, chosen: Tensor, inside: Tensor) -> tuple[Tensor, Tensor | slice | None]:
    """Return whose length counts for each entry, (C, 1 or m), and of which coordinates they are kept.

    None for those `inside`, which have moved.
    """
    if moves.kind is Kind.SINGLE:
        return torch.arange(len(chosen), device=chosen.device).unsqueeze(1), None
    owner = somebody(moves, slice(None) if len(chosen) == moves.count else chosen)
    if owns_all(moves, chosen):
        return torch.searchsorted(inside, owner.contiguous()), None
    if owner.numel() >= len(sampled.point):
        return owner, slice(None)
    return torch.arange(owner.numel(), device=owner.device).view_as(owner), owner.reshape(-1)


def _of_every(sampled: Sampler, inside: Tensor, far: Tensor, kept: Tensor | slice) -> Tensor:
    """Return how far all coordinates, or those kept, have moved, from those that have; (S, L)."""
    every = far.new_zeros(len(far), len(sampled.point))
    every[:, inside] = far
    return every if isinstance(kept, slice) else every.index_select(1, kept)


def samples_of(sampled: Sampler, walk: Walk, rows: slice, outputs: slice) -> Samples:
    """Return the samples of some of the moves and outputs; `sampled` looks at all of those that were walked."""
    half = len(walk.steps.factors)
    lengths = _lengths(sampled, walk, rows, outputs, slice(None)).transpose(0, 1)
    values = walk.values[:, rows, outputs].transpose(0, 1)
    return Samples(
        moves=walk.chosen[rows],
        forth=lengths[:, :half],
        back=lengths[:, half:],
        plus=values[:, :half],
        minus=values[:, half:],
    )


def first_steps(sampled: Sampler, walk: Walk, rows: slice, outputs: slice) -> Tensor:
    """Return how far the coordinate that owns each entry has gone by the largest step; (C, 1) or (C, m)."""
    return _lengths(sampled, walk, rows, outputs, slice(0, 1))[0]


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


def _lengths(sampled: Sampler, walk: Walk, rows: slice, outputs: slice, some: slice) -> Tensor:
    """Return some of the 2 K steps of the coordinate that owns each entry, (S, C, 1) or (S, C, m)."""
    if not walk.spot.shape[1]:  # of a direct move, made again: they are as large as the samples
        moved = _moved(sampled, outputs, walk.steps, some)
        return _far(sampled, outputs, walk.steps, some, moved).unsqueeze(1)
    spot = walk.spot[rows] if walk.spot.shape[1] == 1 else walk.spot[rows, outputs]
    return walk.lengths[some].index_select(1, spot.reshape(-1)).view(-1, *spot.shape)
