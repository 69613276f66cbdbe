"""Rounding errors of backward, measured by vjps along a line and at points a few ulps apart."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, Graph, Reuse
from gradverify.core.decide.compare import MARGINAL, is_resolved
from gradverify.core.decide.context import JudgingContext, of_column_groups
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.excuses.context import (
    ROW_GROUPS,
    ExcuseContext,
    RowGroups,
    entries_from_vjps,
    group_rows,
    vjps_of_groups,
)
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.noise import SAFETY, SAMPLE_DISTANCES, noise_in
from gradverify.core.forward.step_noise import SPACINGS, persistent_part
from gradverify.core.model.coordinates import unflatten
from gradverify.core.model.magnitudes import any_set, identical
from gradverify.core.model.memory import HELD
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.core.tuning import CANCELLATION_UNITS
from gradverify.errors import EvaluationError

_LAST_DIGIT_UNITS = 2.0  # units of rounding allowed to a claim that is a multiple of the last digit
_SMALL_ERROR = 2.0**-10  # upper bound of a small error, if one unit of rounding is less
_GRAIN_GROUPS = 16  # row groups, each one vjp per point
_UNDETERMINED_SPREAD = 1e-6  # relative spread of the vjps above which an entry is undetermined
_MANY_ROWS, _TRIAL_GROUPS = 1024, 2  # with more mismatching rows, so many row groups are tried first
_REPETITIONS = 3  # further vjps at the point if the second one differs from the claims
_ULPS = (2.0, 8.0, 21.0, 64.0)  # sizes of displacements, in ulps of each coordinate, with random signs
_LARGEST_SPREAD = 2.0**-24  # of the row's largest claim: vjps spread by more for other reasons


def excuse_grain(trial: ExcuseContext, judged: Judged) -> Judged:
    """Excuse small errors within the resolution of the vjps around the point."""
    context, backward, chosen = trial.context, trial.backward, trial.chosen
    claimed = context.claimed[chosen]
    small = (judged.code == Code.MISMATCH) & (judged.error <= small_error(context.sampled.eps, context.claimed))
    if not any_set(small):
        return judged
    groups = group_rows(trial, small, min(_GRAIN_GROUPS, HELD // max(1, context.sampled.point.numel())))
    noise, magnitude = (
        entries_from_vjps(found, groups, context.column_groups.column_of[chosen])
        for found in _vjp_noise(context, backward, groups)
    )
    unit = context.sampled.eps * magnitude.clamp(max=1.0)
    zero = claimed == 0  # no digit is left, and a constant vjp shows no stairs
    grain = torch.where(_is_multiple_of_last_digit(claimed, unit), _LAST_DIGIT_UNITS * unit, 0.0)
    allowed = judged.allowed + torch.where(zero, CANCELLATION_UNITS * unit, torch.maximum(BAR_FACTOR * noise, grain))
    excused = small & (judged.error <= allowed)
    allowance = of_column_groups(context.allowance, chosen)
    resolved = is_resolved(noise, torch.maximum(claimed.abs(), magnitude), allowance)
    rules = [(excused, Reason.BACKWARD_RESOLUTION), (excused & ~resolved, Reason.BACKWARD_UNRESOLVED)]
    if any_set(excused):  # rows beyond the limit may have the same explanation
        not_examined = torch.zeros_like(small[0])
        not_examined[groups.left_out] = True
        rules.append((small & not_examined, Reason.NOT_EXAMINED))
    return decide(judged, rules, allowed=torch.where(excused, allowed, judged.allowed))


def small_error(eps: float, claimed: Tensor) -> float:
    """Return the error that rounding of numbers around 1, or around the largest claim, may cause."""
    largest = float(claimed.abs().nan_to_num(0.0, 0.0, 0.0).max()) if claimed.numel() else 0.0
    return min(max(_SMALL_ERROR, eps), CANCELLATION_UNITS * eps) * max(1.0, largest)


def excuse_spread(trial: ExcuseContext, judged: Judged) -> Judged:
    """Excuse errors within the spread of the vjps at the point and a few ulps away from it."""
    row_size = trial.context.claimed.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
    marginal = (judged.code == Code.MISMATCH) & (judged.error <= MARGINAL * row_size)
    if not any_set(marginal):
        return judged
    if int(marginal.any(dim=0).sum()) > _MANY_ROWS and not any_set(
        _excused_by_spread(trial, judged, marginal, row_size, _TRIAL_GROUPS)[0]
    ):
        return judged
    excused, allowed, undetermined = _excused_by_spread(trial, judged, marginal, row_size, ROW_GROUPS)
    rules = [(excused, Reason.BACKWARD_SCATTER), (undetermined, Reason.BACKWARD_UNRESOLVED)]
    return decide(judged, rules, allowed=torch.where(excused, allowed, judged.allowed))


def backward_at(backward: Backward, point: Tensor) -> Backward:
    """Return backward at another point (n,); raises EvaluationError.

    One graph serves all vjps there if it does at the original point; otherwise each vjp records its own.
    """
    problem = _problem_at(backward.problem, point)
    shared = backward.graph.reuse is Reuse.SHARED
    graph = Graph(reuse=Reuse.SHARED if shared else Reuse.FRESH)
    return replace(backward, problem=problem, tape=record(problem), graph=graph)


def _is_multiple_of_last_digit(claimed: Tensor, unit: Tensor) -> Tensor:
    """Mask of claims that are multiples of the last digit of numbers whose rounding is `unit`; all (C, m).

    Near zero there may be too few stairs for the noise estimate to show them.
    """
    _, power = torch.frexp(unit / 2)
    digit = torch.ldexp(torch.full_like(unit, 0.5), power)  # the power of two at or below half a unit
    return (digit > 0) & (claimed.remainder(digit.clamp(min=torch.finfo(torch.float64).tiny)) == 0)


def _vjp_noise(context: JudgingContext, backward: Backward, groups: RowGroups) -> tuple[Tensor, Tensor]:
    """Return the noise of the vjps of these row groups, and their largest magnitude around the point; both (K, n)."""
    noise, magnitudes = [], []
    for side in (own_or_shared(context.lengths), -own_or_shared(context.lengths)):
        at_spacings = []
        for spacing in SPACINGS:
            vjps = torch.stack(
                [_vjps_or_nan(context, backward, groups, place * spacing * side) for place in SAMPLE_DISTANCES]
            )
            at_spacings.append(noise_in(vjps))
            magnitudes.append(vjps.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0))
        noise.append(persistent_part(torch.stack(at_spacings)))
    shape = (len(groups.cotangents), context.sampled.point.numel())
    return SAFETY * torch.stack(noise).amax(dim=0).view(shape), torch.stack(magnitudes).amax(dim=0).view(shape)


def _vjps_or_nan(context: JudgingContext, backward: Backward, groups: RowGroups, displacement: Tensor) -> Tensor:
    """Return the vjps at a displaced point, (K·n,); nan if backward raises there."""
    try:
        return vjps_of_groups(backward_at(backward, context.sampled.point + displacement), groups).reshape(-1)
    except EvaluationError:
        shape = (len(groups.cotangents) * len(displacement),)
        return torch.full(shape, torch.nan, dtype=torch.float64, device=displacement.device)


def _excused_by_spread(
    trial: ExcuseContext, judged: Judged, marginal: Tensor, row_size: Tensor, limit: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mask of excused entries, the allowed errors, and the mask of undetermined entries; each (C, m).

    Uses at most `limit` row groups.
    """
    context = trial.context
    groups = group_rows(trial, marginal, limit)
    repeated = _spread_of_repetitions(trial, groups)
    rounded = _spread_of_means(trial, groups, _LARGEST_SPREAD * row_size)
    allowed = judged.allowed + BAR_FACTOR * torch.maximum(repeated, rounded)
    excused = marginal & (judged.error <= allowed)
    size = torch.maximum(context.claimed[trial.chosen].abs(), judged.numeric.abs())
    undetermined = (BAR_FACTOR * repeated > _UNDETERMINED_SPREAD * row_size) | (
        BAR_FACTOR * rounded > _UNDETERMINED_SPREAD * size
    )
    return excused, allowed, excused & undetermined


def _spread_of_repetitions(trial: ExcuseContext, groups: RowGroups) -> Tensor:
    """Return the spread of repeated vjps at the point; (C, m)."""
    claimed, point = trial.context.claimed[trial.chosen], trial.context.sampled.point
    results = [claimed, _entries_at(trial, groups, point)]
    if not identical(*results):
        results += [_entries_at(trial, groups, point) for _ in range(_REPETITIONS)]
    return _range(torch.stack(results))


def _spread_of_means(trial: ExcuseContext, groups: RowGroups, most: Tensor) -> Tensor:
    """Return the spread of the means of vjps at opposite points, (C, m); 0 if the vjps spread by more than `most`."""
    point, results, middles = trial.context.sampled.point, [], []
    for ulps in _ULPS:
        displacement = _displacement(point, ulps)
        pair = [_entries_at(trial, groups, point + side * displacement) for side in (1.0, -1.0)]
        results += pair
        middles.append((pair[0] + pair[1]) / 2)
    return torch.where(_range(torch.stack(results)) <= most, _range(torch.stack(middles)), 0.0)


def _entries_at(trial: ExcuseContext, groups: RowGroups, point: Tensor) -> Tensor:
    """Return the entries from vjps at a point, (C, m); the claims where no vjp gives a finite number."""
    column_of, claimed = trial.context.column_groups.column_of[trial.chosen], trial.context.claimed[trial.chosen]
    try:
        vjps = vjps_of_groups(backward_at(trial.backward, point), groups)
    except EvaluationError:
        return claimed
    known = (entries_from_vjps(torch.ones_like(vjps), groups, column_of) > 0).logical_and_(claimed.isfinite())
    entries = entries_from_vjps(vjps, groups, column_of)
    return torch.where(known & entries.isfinite(), entries, claimed)


def _range(values: Tensor) -> Tensor:
    """Return max - min over the first dimension of (N, ...); 0 where not finite."""
    return (values.amax(dim=0) - values.amin(dim=0)).nan_to_num(0.0, 0.0, 0.0)


def _displacement(point: Tensor, ulps: float) -> Tensor:
    """Return a displacement of each coordinate by so many of its ulps, with random signs; (n,)."""
    generator = torch.Generator().manual_seed(int(ulps))
    signs = torch.where(torch.rand(point.shape, generator=generator) < 0.5, -1.0, 1.0).to(point)
    return ulps * torch.finfo(torch.float64).eps * signs * point


def _problem_at(problem: Problem, point: Tensor) -> Problem:
    """Return the problem at another point (n,)."""
    tensors = unflatten(point, [primal.tensor for primal in problem.primals])
    primals = tuple(replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True))
    return replace(problem, primals=primals)
