"""Backward in low precision: it is right in float64, takes the branch of a nearby point, or is mostly rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import SUM_UNITS, rows
from gradverify.core.backward.vjps import Backward, Batched, Graph, Reuse
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.directional import STEP
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.excuses.backward_rounding import backward_at, small_error
from gradverify.core.excuses.context import (
    COLUMNS_EXAMINED,
    ROW_GROUPS,
    ExcuseContext,
    derivatives_by,
    entries_from_vjps,
    group_rows,
    vjps_of_groups,
)
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.sampler import output_indices as standing
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import any_set
from gradverify.core.model.tape import record
from gradverify.core.tuning import EXPLAINED, INPUT_EPS, NEARBY_POINTS, RESULT_UNITS, SMALL_PART
from gradverify.errors import EvaluationError

_RIGHT = 1e-5  # of the entry: error of a right formula in double precision
_BRANCH_EPS = 1.0  # eps of backward: displacement of every input that may lead to another branch
_POINTS = 12  # displaced points


def excuse_doubled(trial: ExcuseContext, judged: Judged) -> Judged:
    """Excuse small errors if the same backward is right in double precision.

    A claim of zero is not excused: it may be underflow or a branch that only low precision takes.
    """
    context, chosen = trial.context, trial.chosen
    small = (judged.code == Code.MISMATCH) & (judged.error <= small_error(context.sampled.eps, context.claimed))
    if not context.sampled.backward_eps or not any_set(small):
        return judged
    groups = group_rows(trial, small)
    problem = context.sampled.problem
    try:
        in_double = replace(
            trial.backward,
            problem=problem,
            tape=record(problem),
            graph=Graph(reuse=Reuse.FRESH),
            batched=Batched(trusted=False),
        )
        entries = entries_from_vjps(vjps_of_groups(in_double, groups), groups, context.column_groups.column_of[chosen])
    except EvaluationError:
        return judged
    # Rows in no group are 0 here and stay mismatches: a numeric entry of the claim's sign exceeds its bar.
    right = (entries - judged.numeric).abs() <= BAR_FACTOR * judged.bar + _RIGHT * judged.numeric.abs()
    same_sign = (context.claimed[chosen] * judged.numeric > 0) & (judged.error <= judged.numeric.abs())
    excused = small & right & same_sign
    allowed = torch.where(excused, judged.error, judged.allowed)
    return decide(judged, [(excused, Reason.FLOAT64_BACKWARD)], allowed=allowed)


def excuse_coarse(trial: ExcuseContext, judged: Judged) -> Judged:
    """Excuse claims between the derivatives at points within backward's rounding of the inputs.

    If these derivatives belong to two smooth pieces and differ by more than is allowed, the entry is at a kink. Errors
    that accumulated rounding in the row may cause become undetermined.
    """
    context, chosen = trial.context, trial.chosen
    wrong = judged.code == Code.MISMATCH
    if not context.sampled.backward_eps or not any_set(wrong):
        return judged
    generator = torch.Generator().manual_seed(trial.seed + 8)
    length = own_or_shared(context.lengths)
    half = [
        random_magnitudes(_BRANCH_EPS * context.sampled.backward_eps * length, generator) for _ in range(NEARBY_POINTS)
    ]
    displacements = [torch.zeros_like(length), *half, *(-place for place in half)]
    claimed, column_of = context.claimed[chosen], context.column_groups.column_of[chosen]
    allowed = judged.allowed.clone()
    row_size = context.claimed.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
    accumulated = wrong & (judged.error <= SUM_UNITS * context.sampled.backward_eps * row_size)
    columns = torch.unique(column_of[wrong])
    excused, at_kink = torch.zeros_like(wrong), torch.zeros_like(wrong)
    for column in columns[:COLUMNS_EXAMINED].tolist():
        at_points = derivatives_by(context, column, displacements)
        low, high = at_points.amin(dim=0), at_points.amax(dim=0)
        between = (claimed >= low - judged.allowed) & (claimed <= high + judged.allowed)
        # A forward in the same low precision shows only noise at such steps.
        resolved = context.noise.level <= SMALL_PART * STEP * length[column] * judged.error
        explained = wrong & (column_of == column) & between & resolved
        kinked = _is_asymmetric(at_points, high - low) & (high - low > judged.allowed)
        at_kink |= explained & kinked
        allowed[explained] = torch.maximum(allowed, judged.error)[explained]
        excused |= explained
    rules = [
        (accumulated, Reason.ROUNDING_OF_ROW),
        (excused, Reason.OTHER_BRANCH),
        (at_kink, Reason.KINK_OF_OTHER_BRANCH),
    ]
    if any_set(excused):  # columns beyond the limit may have the same explanation
        rules.append((wrong & torch.isin(column_of, columns[COLUMNS_EXAMINED:]), Reason.NOT_EXAMINED))
    return decide(judged, rules, allowed=allowed)


def excuse_unstable(trial: ExcuseContext, judged: Judged) -> Judged:
    """Make errors undetermined that do not exceed the scatter of vjps at points within backward's own rounding."""
    context, backward, chosen = trial.context, trial.backward, trial.chosen
    wrong = judged.code == Code.MISMATCH
    if not context.sampled.backward_eps or not any_set(wrong):
        return judged
    column_of = context.column_groups.column_of[chosen]
    outputs = wrong.any(dim=0).nonzero().squeeze(1)[:ROW_GROUPS]
    columns = torch.unique(column_of[wrong])[:COLUMNS_EXAMINED]
    points = list(_points_within_rounding(context, backward, trial.seed))
    vjps = _rows_at(context, backward, points, outputs)
    if vjps is None:
        return judged
    unstable, bar = torch.zeros_like(wrong), judged.bar.clone()
    size, length = context.sampled.size[outputs], own_or_shared(context.lengths)
    for column in columns.tolist():
        in_column = wrong & (column_of == column)
        displacements = (point - context.sampled.point for point in points)
        errors = vjps[:, :, column] - derivatives_by(context, column, displacements)[:, outputs]
        scatter = judged.error.new_zeros(judged.error.shape[1])
        scatter[outputs] = _scatter(errors, RESULT_UNITS * context.sampled.backward_eps * size / length[column])
        excused = in_column & (judged.error <= EXPLAINED * scatter)
        unstable |= excused
        bar[excused] = judged.error[excused]
    return decide(judged, [(unstable, Reason.BACKWARD_NOISE)], bar=bar)


def _is_asymmetric(at_points: Tensor, width: Tensor) -> Tensor:
    """Mask of outputs whose slopes at opposite points are not symmetric about the slope at the point; (m,)."""
    here, after, before = at_points[0], at_points[1 : NEARBY_POINTS + 1], at_points[NEARBY_POINTS + 1 :]
    return ((after + before) / 2 - here).abs().amax(dim=0) > SMALL_PART * width


def _points_within_rounding(context: JudgingContext, backward: Backward, seed: int) -> Iterator[Tensor]:
    """Yield the point and displaced points, rounded to the primals' dtypes; each (n,)."""
    generator = torch.Generator().manual_seed(seed + 9)
    primals = [primal.tensor for primal in backward.problem.primals]
    yield context.sampled.point
    for _ in range(_POINTS):
        moved = context.sampled.point + random_magnitudes(
            INPUT_EPS * context.sampled.backward_eps * own_or_shared(context.lengths), generator
        )
        yield flatten(unflatten(moved, primals))


def _rows_at(context: JudgingContext, backward: Backward, points: list[Tensor], outputs: Tensor) -> Tensor | None:
    """Return the rows of these outputs at each point, (N, k, n); None if backward raises at one of them."""
    coordinates = standing(context.sampled, outputs).tolist()
    try:
        return torch.stack([torch.stack(list(rows(backward_at(backward, point), coordinates))) for point in points])
    except EvaluationError:
        return None


def _scatter(errors: Tensor, step: Tensor) -> Tensor:
    """Return the range of errors (N, k), without the widest gap if the range exceeds `step` (k,); (k,)."""
    ordered = errors.sort(dim=0).values
    width = ordered[-1] - ordered[0]
    return torch.maximum(width - ordered.diff(dim=0).amax(dim=0), torch.minimum(width, step)).nan_to_num(0.0, 0.0, 0.0)
