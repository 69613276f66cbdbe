"""Backward in low precision: right in float64, of another branch beside the point, or mostly rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import rows
from gradverify.core.backward.vjps import Backward, Batched, Graph, Reuse
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.nearby_gradients import STEP, slopes
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.excuses.backward_rounding import nearby, smallness
from gradverify.core.excuses.trial import Trial, answered, questions, told
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.sampler import places as standing
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import any_set
from gradverify.core.model.tape import record
from gradverify.errors import EvaluationError

_RIGHT = 1e-5  # of an entry: as near as a right formula comes to it in double precision
_QUESTIONS = 64  # asked in double precision, at most: a row each, or several rows that no input is common to
_NUMBERS = 4_000_000  # held for them, at most
_BESIDE = 1.0  # unit of its rounding, that every input is moved by to find branches
_PAIRS = 8  # of opposite points at which derivatives are taken
_DEEP = 16.0  # units of rounding of the largest in its row, that one rounding after the other may leave
_UNEVEN = 0.1  # of the range of slopes: a kink takes at least half of it, and a smooth function next to nothing
_RESOLVED = 0.1  # of an error, that noise may make of a slope
_UNITS = 2.0  # of backward's rounding, that every input is moved by
_POINTS = 12  # asked at, beside the point itself
_WITHIN = 2.0  # times what its answers scatter by, an entry may be off
_STEP = 4.0  # units of rounding, beside the output's own slope, that are no branch
_ROWS, _COLUMNS = 32, 96  # looked at again, at most


def excuse_doubled(trial: Trial, judged: Judged) -> Judged:
    """Take back small accusations where the same backward is right in double precision.

    Not of zeros: where nothing is left of an entry, nobody can tell rounding from a branch of low precision's own.
    """
    context, chosen = trial.context, trial.chosen
    small = (judged.code == Code.MISMATCH) & (judged.error <= smallness(context))
    if not context.sampled.coarse or not any_set(small):
        return judged
    asked = questions(
        context, trial.backward, chosen, small, min(_QUESTIONS, _NUMBERS // max(1, context.sampled.point.numel()))
    )
    problem = context.sampled.problem
    try:
        finer = replace(
            trial.backward,
            problem=problem,
            tape=record(problem),
            graph=Graph(reuse=Reuse.FRESH),
            batched=Batched(believed=False),
        )
        said = told(answered(finer, asked), asked, context.column_groups.column_of[chosen])
    except EvaluationError:
        return judged
    # What was not asked says zero, which is never right: an accused entry that keeps its sign is larger than its bar.
    right = (said - judged.numeric).abs() <= BAR_FACTOR * judged.bar + _RIGHT * judged.numeric.abs()
    alike = (context.claimed[chosen] * judged.numeric > 0) & (judged.error <= judged.numeric.abs())
    excused = small & right & alike
    allowed = torch.where(excused, judged.error, judged.allowed)
    return decide(judged, [(excused, Reason.FLOAT64_BACKWARD)], allowed=allowed)


def excuse_coarse(trial: Trial, judged: Judged) -> Judged:
    """Take back accusations that lie between derivatives at points within backward's own rounding.

    Where these are those of two pieces, further apart than what is allowed, it is a kink. What sums of roundings might
    leave is not accused either.
    """
    context, chosen = trial.context, trial.chosen
    wrong = judged.code == Code.MISMATCH
    if not context.sampled.coarse or not any_set(wrong):
        return judged
    generator = torch.Generator().manual_seed(trial.seed + 8)
    length = own_or_shared(context.lengths)
    half = [scattered(_BESIDE * context.sampled.coarse * length, generator) for _ in range(_PAIRS)]
    around = [torch.zeros_like(length), *half, *(-place for place in half)]
    claimed, column_of = context.claimed[chosen], context.column_groups.column_of[chosen]
    allowed = judged.allowed.clone()
    row = context.claimed.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
    deep = wrong & (judged.error <= _DEEP * context.sampled.coarse * row)
    columns = torch.unique(column_of[wrong])
    taken_back, at_kink = torch.zeros_like(wrong), torch.zeros_like(wrong)
    for column in columns[:_COLUMNS].tolist():
        direction = torch.zeros_like(length)
        direction[column] = length[column]
        found = slopes(context.sampled, around, [direction]).squeeze(1) / length[column]
        low, high = found.amin(dim=0), found.amax(dim=0)
        between = (claimed >= low - judged.allowed) & (claimed <= high + judged.allowed)
        # A forward that is no finer itself shows only noise by such steps.
        resolved = context.noise.level <= _RESOLVED * STEP * length[column] * judged.error
        explained = wrong & (column_of == column) & between & resolved
        broken = _broken(found, high - low) & (high - low > judged.allowed)
        at_kink |= explained & broken
        allowed[explained] = torch.maximum(allowed, judged.error)[explained]
        taken_back |= explained
    rules = [(deep, Reason.ROUNDING_OF_ROW), (taken_back, Reason.OTHER_BRANCH), (at_kink, Reason.KINK_OF_OTHER_BRANCH)]
    if any_set(taken_back):  # columns beyond the limit may be explained as well
        rules.append((wrong & torch.isin(column_of, columns[_COLUMNS:]), Reason.NOT_EXAMINED))
    return decide(judged, rules, allowed=allowed)


def excuse_unstable(trial: Trial, judged: Judged) -> Judged:
    """Leave undetermined what is off by no more than backward's answers scatter by, at points it can hardly tell."""
    context, backward, chosen = trial.context, trial.backward, trial.chosen
    wrong = judged.code == Code.MISMATCH
    if not context.sampled.coarse or not any_set(wrong):
        return judged
    column_of = context.column_groups.column_of[chosen]
    outputs = wrong.any(dim=0).nonzero().squeeze(1)[:_ROWS]
    columns = torch.unique(column_of[wrong])[:_COLUMNS]
    points = list(_points(context, backward, trial.seed))
    answers = _answers(context, backward, points, outputs)
    if answers is None:
        return judged
    unstable, bar = torch.zeros_like(wrong), judged.bar.clone()
    size, length = context.sampled.size[outputs], own_or_shared(context.lengths)
    for column in columns.tolist():
        mine = wrong & (column_of == column)
        off = answers[:, :, column] - _slopes(context, points, column)[:, outputs]
        scatter = judged.error.new_zeros(judged.error.shape[1])
        scatter[outputs] = _scatter(off, _STEP * context.sampled.coarse * size / length[column])
        excused = mine & (judged.error <= _WITHIN * scatter)
        unstable |= excused
        bar[excused] = judged.error[excused]
    return decide(judged, [(unstable, Reason.BACKWARD_NOISE)], bar=bar)


def _broken(found: Tensor, spread: Tensor) -> Tensor:
    """Tell where slopes at opposite points do not lie evenly about that between them, as smooth ones do; (m,)."""
    here, forth, back = found[0], found[1 : _PAIRS + 1], found[_PAIRS + 1 :]
    return ((forth + back) / 2 - here).abs().amax(dim=0) > _UNEVEN * spread


def _points(context: JudgingContext, backward: Backward, seed: int) -> Iterator[Tensor]:
    """Yield the point, and some close by that backward's own dtype holds; each (n,)."""
    generator = torch.Generator().manual_seed(seed + 9)
    primals = [primal.tensor for primal in backward.problem.primals]
    yield context.sampled.point
    for _ in range(_POINTS):
        moved = context.sampled.point + scattered(
            _UNITS * context.sampled.coarse * own_or_shared(context.lengths), generator
        )
        yield flatten(unflatten(moved, primals))


def _answers(context: JudgingContext, backward: Backward, points: list[Tensor], outputs: Tensor) -> Tensor | None:
    """Return the rows of these outputs at each of the points, (N, k, n), None where backward raises at one."""
    asked = standing(context.sampled, outputs).tolist()
    try:
        return torch.stack([torch.stack(list(rows(nearby(backward, point), asked))) for point in points])
    except EvaluationError:
        return None


def _slopes(context: JudgingContext, points: list[Tensor], column: int) -> Tensor:
    """Return the derivatives by one coordinate at each of the points, by differences; (N, m)."""
    direction = torch.zeros_like(context.sampled.point)
    direction[column] = own_or_shared(context.lengths)[column]
    places = (point - context.sampled.point for point in points)
    return slopes(context.sampled, places, [direction]).squeeze(1) / direction[column]


def _scatter(off: Tensor, step: Tensor) -> Tensor:
    """Return how far errors (N, k) are apart, (k,), but for the widest gap, where it is wider than a `step` (k,)."""
    ordered = off.sort(dim=0).values
    apart = ordered[-1] - ordered[0]
    return torch.maximum(apart - ordered.diff(dim=0).amax(dim=0), torch.minimum(apart, step)).nan_to_num(0.0, 0.0, 0.0)
