"""Accusations of a backward in low precision whose answers scatter by as much as they are off.

Where something cancels inside, as in a layer norm over two elements, what backward answers is its rounding: another one
at every point close by, while the derivative hardly varies. A mistake is off by about the same at all of them. Next to
a branch that is taken in the wrong place, it is off by one of two amounts, far apart beside the output itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.excuses.spread import nearby
from gradverify.core.excuses.trial import Trial
from gradverify.core.function.analytic import Reverse
from gradverify.core.function.chance import scattered
from gradverify.core.function.coordinates import flatten, unflatten
from gradverify.core.function.flags import any_set
from gradverify.core.function.rows import rows
from gradverify.core.function.sampler import places as standing
from gradverify.core.function.scale import own_or_shared
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.pieces import slopes
from gradverify.errors import EvaluationError

_UNITS = 2.0  # of backward's rounding, that every input is moved by
_POINTS = 12  # asked at, beside the point itself
_WITHIN = 2.0  # times what its answers scatter by, an entry may be off
_STEP = 4.0  # units of rounding, beside the output's own slope, that are no branch
_ROWS, _COLUMNS = 32, 96  # looked at again, at most


def excuse_unstable(trial: Trial, judged: Judged) -> Judged:
    """Leave undetermined what is off by no more than backward's answers scatter by, at points it can hardly tell."""
    at, backward, chosen = trial.at, trial.backward, trial.chosen
    wrong = judged.code == Code.MISMATCH
    if not at.sampled.coarse or not any_set(wrong):
        return judged
    owner = at.moves.owner[chosen]
    outputs = wrong.any(dim=0).nonzero().squeeze(1)[:_ROWS]
    columns = torch.unique(owner[wrong])[:_COLUMNS]
    points = list(_points(at, backward, trial.seed))
    answers = _answers(at, backward, points, outputs)
    if answers is None:
        return judged
    code, bar = judged.code.clone(), judged.bar.clone()
    size, length = at.sampled.size[outputs], own_or_shared(at.lengths)
    for column in columns.tolist():
        mine = wrong & (owner == column)
        off = answers[:, :, column] - _slopes(at, points, column)[:, outputs]
        scatter = judged.error.new_zeros(judged.error.shape[1])
        scatter[outputs] = _scatter(off, _STEP * at.sampled.coarse * size / length[column])
        excused = mine & (judged.error <= _WITHIN * scatter)
        code[excused] = Code.UNDETERMINED
        bar[excused] = judged.error[excused]
    return replace(judged, code=code, bar=bar)


def _points(at: Bench, backward: Reverse, seed: int) -> Iterator[Tensor]:
    """Yield the point, and some close by that backward's own dtype holds; each (n,)."""
    generator = torch.Generator().manual_seed(seed + 9)
    primals = [primal.tensor for primal in backward.problem.primals]
    yield at.sampled.point
    for _ in range(_POINTS):
        moved = at.sampled.point + scattered(_UNITS * at.sampled.coarse * own_or_shared(at.lengths), generator)
        yield flatten(unflatten(moved, primals))


def _answers(at: Bench, backward: Reverse, points: list[Tensor], outputs: Tensor) -> Tensor | None:
    """Return the rows of these outputs at each of the points, (N, k, n), None where backward raises at one."""
    asked = standing(at.sampled, outputs).tolist()
    try:
        return torch.stack([torch.stack(list(rows(nearby(backward, point), asked))) for point in points])
    except EvaluationError:
        return None


def _slopes(at: Bench, points: list[Tensor], column: int) -> Tensor:
    """Return the derivatives by one coordinate at each of the points, by differences; (N, m)."""
    direction = torch.zeros_like(at.sampled.point)
    direction[column] = own_or_shared(at.lengths)[column]
    places = (point - at.sampled.point for point in points)
    return slopes(at.sampled, places, [direction]).squeeze(1) / direction[column]


def _scatter(off: Tensor, step: Tensor) -> Tensor:
    """Return how far errors (N, k) are apart, (k,), but for the widest gap, where it is wider than a `step` (k,)."""
    ordered = off.sort(dim=0).values
    apart = ordered[-1] - ordered[0]
    return torch.maximum(apart - ordered.diff(dim=0).amax(dim=0), torch.minimum(apart, step)).nan_to_num(0.0, 0.0, 0.0)
