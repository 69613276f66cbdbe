"""Many points evaluated in one call of forward if that gives the same values, and how long a call takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from gradverify.core.forward.batch_stacking import (
    HELD,
    REFUSED,
    ROUGH,
    WORTH,
    ElsewhereError,
    by_batch,
    by_batch_in_part,
    joined,
    quietly,
    stacked,
)
from gradverify.core.forward.sampler import Mode, Sampler, along, single, units_apart
from gradverify.core.model.decomposed import plainly
from gradverify.core.model.problem import call
from gradverify.errors import EvaluationError

_TIMES = 3  # that it is called: the first call may be slow for other reasons


def evaluate(sampled: Sampler, points: Tensor, into: Tensor, *, roughly: bool = False) -> None:
    """Write the outputs at each of the points (N, n) to `into` (N, m); the points are used up.

    `roughly`, they may differ from those of single calls by as many units of rounding as `Together.rough` then says.
    """
    few = len(points) < WORTH or points.numel() + into.numel() > HELD or sampled.together.slow
    if not few and _together(sampled, points, into, ROUGH if roughly else 0.0):
        return
    for point, row in zip(points, into, strict=True):
        single(sampled, point, row)


def seconds(sampled: Sampler) -> float:
    """Return the shortest time of a few calls at the point, waiting included."""
    return min(_once(sampled) for _ in range(_TIMES))


def _together(sampled: Sampler, points: Tensor, into: Tensor, most: float) -> bool:
    """Evaluate all points in one call; tell whether that was possible and can be believed.

    They may be so many units of rounding apart from single calls.
    """
    state = sampled.together
    if sampled.mode is not Mode.WITHOUT_GRAPH or sampled.problem.seed is not None:
        return False
    for way in [way for way in state.ways if state.apart.get(way, 0.0) <= most]:
        try:
            with quietly():
                found = _WAYS[way](sampled, points, most)
        except ElsewhereError:
            continue
        except (EvaluationError, *REFUSED):
            found = None
        apart = math.inf if found is None else _apart(sampled, points, found)
        if apart > 0.0:
            state.apart[way] = max(apart, state.apart.get(way, 0.0)) if apart <= ROUGH else math.inf
        if found is not None and apart <= most:
            into.copy_(found)
            return True
    state.ways[:] = [way for way in state.ways if state.apart.get(way, 0.0) < math.inf]
    return False


def _apart(sampled: Sampler, points: Tensor, found: Tensor) -> float:
    """Return how far one row is from a call of its own; another one each time, at first always, later now and then."""
    state = sampled.together
    state.calls += 1
    if found.shape != (len(points), sampled.value.numel()):
        return math.inf
    if state.calls & (state.calls - 1):
        return 0.0  # no power of two
    place = (state.calls * 7919) % len(points)
    return units_apart(sampled, found[place], single(sampled, points[place].clone()))


def _by_vmap(sampled: Sampler, points: Tensor, _most: float) -> Tensor:
    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        found = {output.name: output.tensor for output in call(sampled.problem, tensors)}
        return tuple(found[name] for name in sampled.names)

    with plainly():
        return joined(sampled, torch.vmap(function)(*stacked(sampled, points)))


def _once(sampled: Sampler) -> float:
    begun = time.perf_counter()
    along(sampled, torch.zeros_like(sampled.point))[:1].tolist()  # a GPU is waited for by who reads a number
    return time.perf_counter() - begun


_WAYS: dict[str, Callable[[Sampler, Tensor, float], Tensor | None]] = {
    "batch": by_batch,
    "vmap": _by_vmap,
    "batch in part": by_batch_in_part,
}
