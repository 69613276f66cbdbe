"""Evaluate the forward at many points, in one call if that gives the same values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradverify.core.forward.batch_stacking import (
    SHAPE_ERRORS,
    NotStackableError,
    joined,
    quietly,
    stack_batch,
    stack_batch_in_part,
    stacked,
)
from gradverify.core.forward.sampler import Sampler, difference_in_units, outputs_at
from gradverify.core.model.limits import AT_ONCE, HELD, MIN_BATCHED
from gradverify.core.model.problem import call
from gradverify.core.tuning import LOST_UNITS
from gradverify.deadline import OutOfTime
from gradverify.errors import EvaluationError
from gradverify.interception import plain_forwards


def evaluate(sampled: Sampler, points: Tensor, into: Tensor, *, order: Sequence[int] | None = None) -> None:
    """Write the outputs at the points (N, n) to `into` (N, m); `points` may be overwritten.

    They are those of single calls, which are made in this `order`. Outputs not reached when time runs out are NaN.
    """
    order, done = range(len(points)) if order is None else order, 0
    try:
        if evaluate_in_one_call(sampled, points, into, 0.0):
            return
        for place in order:
            outputs_at(sampled, points[place], into[place])
            done += 1
    except OutOfTime:
        into[list(order[done:])] = torch.nan
        raise


def on_line(sampled: Sampler, direction: Tensor, distances: Sequence[float]) -> Tensor:
    """Return the outputs at `distances` from the point along `direction` (n,); (K, m).

    Large points are evaluated one by one, so that only one is held in memory.
    """
    found = sampled.value.new_empty(len(distances), sampled.value.numel())
    if sampled.point.numel() + sampled.value.numel() < AT_ONCE:
        evaluate(sampled, points_on_line(sampled, direction, distances), found)
        return found
    for distance, into in zip(distances, torch.split(found, 1), strict=True):
        evaluate(sampled, torch.add(sampled.point, direction, alpha=distance).unsqueeze(0), into)
    return found


def points_on_line(sampled: Sampler, direction: Tensor, distances: Sequence[float]) -> Tensor:
    """Return the points at `distances` along `direction` (n,); (K, n)."""
    factors = torch.tensor(distances, dtype=direction.dtype, device=direction.device)
    return sampled.point + factors.unsqueeze(1) * direction


def evaluate_in_one_call(sampled: Sampler, points: Tensor, into: Tensor, most: float) -> bool:
    """Write the outputs at the points (N, n) to `into` (N, m), and return True, if one call gives them all.

    They may differ from those of single calls by `most` unit roundoffs. Few points, or those that take much memory, are
    left to single calls.
    """
    state = sampled.vectorisation
    if len(points) < MIN_BATCHED or points.numel() + into.numel() > HELD:
        return False
    if sampled.with_graph or sampled.problem.seed is not None:
        return False
    for way in [way for way in state.ways if state.differences.get(way, 0.0) <= most]:
        try:
            with quietly():
                found = _WAYS[way](sampled, points, most)
        except NotStackableError:
            continue
        except (EvaluationError, *SHAPE_ERRORS):
            found = None
        difference = math.inf if found is None else _spot_check(sampled, points, found)
        state.note(way, difference if difference <= LOST_UNITS else math.inf)
        if found is not None and difference <= most:
            into.copy_(found)
            state.shares_calls = True
            return True
    state.ways[:] = [way for way in state.ways if state.differences.get(way, 0.0) < math.inf]
    return False


def _spot_check(sampled: Sampler, points: Tensor, found: Tensor) -> float:
    """Return by how many unit roundoffs one row differs from a single call; checked at calls 1, 2, 4, 8, …, else 0."""
    state = sampled.vectorisation
    state.calls += 1
    if found.shape != (len(points), sampled.value.numel()):
        return math.inf
    if state.calls & (state.calls - 1):
        return 0.0  # not a power of two
    place = (state.calls * 7919) % len(points)
    return difference_in_units(sampled, found[place], outputs_at(sampled, points[place].clone()))


def _by_vmap(sampled: Sampler, points: Tensor, _most: float) -> Tensor:
    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        found = {output.name: output.tensor for output in call(sampled.problem, tensors)}
        return tuple(found[name] for name in sampled.names)

    with plain_forwards():
        return joined(sampled, torch.vmap(function)(*stacked(sampled, points)))


_WAYS: dict[str, Callable[[Sampler, Tensor, float], Tensor | None]] = {
    "batch": stack_batch,
    "vmap": _by_vmap,
    "batch in part": stack_batch_in_part,
}
