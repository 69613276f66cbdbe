"""Rounding errors of backward: lost last digits, and the scatter of the claims' errors at points close by.

In low precision, the error of a claim is its difference from what the same backward returns in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, Graph, Reuse, fails_later, many_vjps, row_cotangent
from gradverify.core.decide.compare import is_resolved
from gradverify.core.decide.context import JudgingContext, of_column_groups
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.column_groups import disjoint_rows
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.forward.sampler import output_indices
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.limits import HELD
from gradverify.core.model.magnitudes import TINY, any_set, finite_size
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.core.tuning import (
    CANCELLATION_UNITS,
    CLEARLY_ABOVE,
    EXAMINED_GROUPS,
    EXPLAINED,
    INPUT_EPS,
    LARGEST_CANCELLATION,
    NEARBY_POINTS,
)
from gradverify.errors import EvaluationError

_LARGEST_SCATTER = 2.0**-24  # of the largest in the row: claims that scatter by more are on several pieces
_SCATTER_PAIRS = 16  # pairs of opposite points, from 2 ulps on, each twice as far as the one before
_FEW_SCATTER = 5  # every fifth pair first: beside an error far above their scatter, the others are not examined
_RIGHT = 1e-5  # of the entry: error of a right formula in double precision


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowGroups:
    """Groups of rows without a common input: one vjp gives all rows of a group."""

    group_of: Tensor  # (m,) the group of each output's row; -1 for rows in no group
    cotangents: Tensor  # (K, all outputs) of each group: the sum of the unit vectors of its outputs


def excuse_backward_rounding(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Excuse errors that rounding in backward explains, of their last digits or as large as their scatter.

    A graph whose vjps no longer repeat is marked as worn first, at the cost of a vjp: its mismatches do not count.
    """
    fails_later(context.backward)
    judged = _up_to_last_digits(context, chosen, judged)
    if context.sampled.backward_eps:
        return _up_to_low_precision(context, chosen, judged)
    return _up_to_scatter(context, chosen, judged)


def _up_to_last_digits(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Excuse small errors of claims that are zero or a multiple of the last digit of the claims around the point."""
    claimed = context.claimed[chosen]
    small = (judged.code == Code.MISMATCH) & (judged.error <= small_error(context.sampled.eps, context.claimed))
    if not any_set(small):
        return judged
    groups = _group_rows(context, chosen, small)
    unit = context.sampled.eps * _largest_close_by(context, chosen, groups)
    last_digit = torch.where(_is_multiple_of_last_digit(claimed, unit), EXPLAINED * unit, 0.0)
    allowed = judged.allowed + torch.where(claimed == 0, CANCELLATION_UNITS * unit, last_digit)
    excused = small & (judged.error <= allowed)
    rules = [(excused, Reason.BACKWARD_RESOLUTION)]
    return _decided(judged, groups, small, rules, allowed=torch.where(excused, allowed, judged.allowed))


def _up_to_low_precision(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Excuse claims in low precision if the same backward is right in float64.

    Either the error is small, beside the entry or beside the largest of its row here and close by, whose terms may
    cancel; or the claim lies between those in float64 at points within backward's rounding of the inputs, as that of
    another branch does. Errors that do not exceed the scatter of the claims' errors at these points become
    undetermined, right or not.
    """
    wrong = judged.code == Code.MISMATCH
    if not any_set(wrong):
        return judged
    groups, claimed, numeric = _group_rows(context, chosen, wrong), context.claimed[chosen], judged.numeric
    points = [
        torch.zeros_like(context.sampled.point),
        *_opposite_displacements(context, [INPUT_EPS * context.sampled.eps] * NEARBY_POINTS),
    ]
    in_float64 = _entries(context, chosen, replace(context.backward, problem=context.sampled.problem), groups, points)
    in_own_dtype = _entries(context, chosen, context.backward, groups, points)
    errors = in_own_dtype - torch.where(in_float64.isnan(), 0.0, in_float64)
    right = wrong & ((in_float64[0] - numeric).abs() <= BAR_FACTOR * judged.bar + _RIGHT * numeric.abs())
    small = right & (judged.error <= small_error(context.sampled.eps, context.claimed))
    cancels = small & ~((claimed * numeric > 0) & (judged.error <= numeric.abs()))
    if any_set(cancels):
        largest = _largest_close_by(context, chosen, groups).amax(dim=0)
        largest = torch.maximum(largest, finite_size(context.claimed).amax(dim=0).clamp(max=1.0))
        small &= ~cancels | (judged.error <= small_error(context.sampled.eps, context.claimed[:0]) * largest)
    low, high = in_float64.amin(dim=0), in_float64.amax(dim=0)
    branch = right & (claimed >= low - judged.allowed) & (claimed <= high + judged.allowed)
    scatters = wrong & (judged.error <= EXPLAINED * (errors.amax(dim=0) - errors.amin(dim=0)))
    rules = [(scatters, Reason.BACKWARD_NOISE), (branch, Reason.OTHER_BRANCH), (small, Reason.FLOAT64_BACKWARD)]
    allowed = torch.where(small | branch, torch.maximum(judged.allowed, judged.error), judged.allowed)
    bar = torch.where(scatters, judged.error, judged.bar)
    return _decided(judged, groups, wrong, rules, allowed=allowed, bar=bar)


def _largest_close_by(context: JudgingContext, chosen: Tensor, groups: _RowGroups) -> Tensor:
    """Return the largest magnitude of each claim at points about one length scale away, 1 at most; (C, m)."""
    points = _opposite_displacements(context, [1.0] * NEARBY_POINTS)
    around = _entries(context, chosen, context.backward, groups, points)
    return finite_size(around).amax(dim=0).clamp(max=1.0)


def _up_to_scatter(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Make errors undetermined that do not exceed the scatter of the claims from a few ulps to 2⁻³⁶ away.

    Errors as small as numbers around 1 may leave are excused if that scatter hides no derivative of any consequence.
    """
    small = small_error(context.sampled.eps, context.claimed[:0])
    row_size = finite_size(torch.cat([context.claimed, judged.numeric])).amax(dim=0)
    largest = (_LARGEST_SCATTER * row_size).clamp(min=small)
    wrong = (judged.code == Code.MISMATCH) & (judged.error <= EXPLAINED * largest)
    if not any_set(wrong):
        return judged
    groups = _group_rows(context, chosen, wrong)
    points = _opposite_displacements(context, [2.0**k * context.sampled.eps for k in range(1, _SCATTER_PAIRS + 1)])
    few = _means_of_opposites(context, chosen, groups, points, range(0, _SCATTER_PAIRS, _FEW_SCATTER))
    more = (CLEARLY_ABOVE * (few.amax(dim=0) - few.amin(dim=0))).clamp(min=small)  # the scatter there may be, at most
    if not any_set(wrong & (judged.error <= EXPLAINED * more)):
        return judged
    rest = [pair for pair in range(_SCATTER_PAIRS) if pair % _FEW_SCATTER]
    means = torch.cat([few, _means_of_opposites(context, chosen, groups, points, rest)])
    scatter = means.amax(dim=0) - means.amin(dim=0)
    excused = wrong & (judged.error <= EXPLAINED * scatter) & (scatter <= largest)
    resolved = is_resolved(scatter, judged.numeric.abs(), of_column_groups(context.allowance, chosen))
    match = excused & resolved & (judged.error <= small)
    rules = [(excused, Reason.BACKWARD_NOISE), (match, Reason.BACKWARD_RESOLUTION)]
    bar = torch.where(excused, judged.error, judged.bar)
    return _decided(judged, groups, wrong, rules, bar=bar)


def _means_of_opposites(
    context: JudgingContext, chosen: Tensor, groups: _RowGroups, points: Sequence[Tensor], pairs: Sequence[int]
) -> Tensor:
    """Return the mean entries of some pairs of opposite points, where a linear trend is no error; (pairs, C, m)."""
    both = [points[pair + half] for half in (0, _SCATTER_PAIRS) for pair in pairs]
    entries = _entries(context, chosen, context.backward, groups, both)
    return entries.view(2, len(pairs), *entries.shape[1:]).mean(dim=0)


def small_error(eps: float, claimed: Tensor) -> float:
    """Return the error that rounding of numbers around 1, or around the largest claim, may cause."""
    largest = float(finite_size(claimed).max()) if claimed.numel() else 0.0
    return min(max(LARGEST_CANCELLATION, eps), CANCELLATION_UNITS * eps) * max(1.0, largest)


def _decided(
    judged: Judged, groups: _RowGroups, wrong: Tensor, rules: Sequence[tuple[Tensor, Reason]], **values: Tensor
) -> Judged:
    """Return the verdicts after rules on the entries `wrong` (C, m).

    If a rule applies to any of them, those in rows beyond the limit may have the same explanation.
    """
    applies = torch.stack([where.any() for where, _ in rules]).any()
    return decide(judged, [(wrong & (groups.group_of < 0) & applies, Reason.NOT_EXAMINED), *rules], **values)


def _is_multiple_of_last_digit(claimed: Tensor, unit: Tensor) -> Tensor:
    """Mask of claims that are multiples of the last digit of numbers whose rounding is `unit`; all (C, m)."""
    _, power = torch.frexp(unit / 2)
    digit = torch.ldexp(torch.full_like(unit, 0.5), power)  # the power of two at or below half a unit
    return (digit > 0) & (claimed.remainder(digit.clamp(min=TINY)) == 0)


def _group_rows(context: JudgingContext, chosen: Tensor, wanted: Tensor) -> _RowGroups:
    """Return groups of the rows with entries in the mask `wanted` (C, m), as many as the limit and memory allow.

    Without a known sparsity pattern, two rows have a common input if both claim a nonzero entry for it.
    """
    outputs = wanted.any(dim=0).nonzero().squeeze(1)
    column_of = context.column_groups.column_of[:, outputs]
    reaches = column_of >= 0
    if context.column_groups.single:
        reaches = context.claimed[:, outputs] != 0
        reaches[chosen] |= wanted[:, outputs]
    no_input = len(context.column_groups.colour)
    limit = max(1, min(EXAMINED_GROUPS, HELD // max(1, no_input)))
    rank = torch.randperm(len(outputs), generator=torch.Generator().manual_seed(0)).to(outputs.device)
    reached = torch.where(reaches, column_of, no_input).T
    if int(torch.bincount(reached.reshape(-1), minlength=no_input + 1)[:no_input].max()) == len(outputs):
        number = torch.where(rank < limit, rank, -1)  # they all have an input in common
    else:
        number = disjoint_rows(reached, no_input, rank, limit)
    grouped = number >= 0
    cotangents = torch.zeros(int(number.max()) + 1, len(context.backward.known_vjp[0]), dtype=torch.float64)
    cotangents[number[grouped].cpu(), output_indices(context.sampled, outputs[grouped]).cpu()] = 1.0
    group_of = torch.full((wanted.shape[1],), -1, dtype=torch.long, device=outputs.device)
    group_of[outputs] = number
    return _RowGroups(group_of=group_of, cotangents=cotangents)


def _opposite_displacements(context: JudgingContext, distances: Sequence[float]) -> list[Tensor]:
    """Return a random displacement by about each distance, then their opposites in the same order; each (n,).

    The distances are relative to the length scales.
    """
    generator, length = torch.Generator().manual_seed(context.settings.seed + 8), context.lengths.nonzero
    half = [random_magnitudes(distance * length, generator) for distance in distances]
    return [*half, *(-displacement for displacement in half)]


def _entries(
    context: JudgingContext, chosen: Tensor, backward: Backward, groups: _RowGroups, moves: Iterable[Tensor]
) -> Tensor:
    """Return the entries from vjps at N displaced points, (N, C, m); nan for rows in no group, or if backward raises.

    The points are rounded to the primals' own dtypes. One graph serves all vjps at a point if it does at the original
    point; otherwise each vjp records its own.
    """
    column_of, scale = context.column_groups.column_of[chosen], row_cotangent(backward)
    known = (groups.group_of >= 0) & (column_of >= 0)
    own = [primal.tensor for primal in context.backward.problem.primals]
    reuse = Reuse.SHARED if backward.graph.reuse is Reuse.SHARED else Reuse.FRESH
    entries = []
    for move in moves:
        problem = problem_at(backward.problem, flatten(unflatten(context.sampled.point + move, own)))
        try:
            graph = Graph(reuse=reuse, vectorises=backward.graph.vectorises)
            there = replace(backward, problem=problem, tape=record(problem), graph=graph)
            vjps = many_vjps(there, scale * groups.cotangents) / scale
        except EvaluationError:
            vjps = torch.full((len(groups.cotangents), len(move)), torch.nan, dtype=torch.float64, device=move.device)
        entries.append(torch.where(known, vjps[groups.group_of.clamp(min=0), column_of.clamp(min=0)], torch.nan))
    return torch.stack(entries)


def problem_at(problem: Problem, point: Tensor) -> Problem:
    """Return the problem at another point (n,)."""
    tensors = unflatten(point, [primal.tensor for primal in problem.primals])
    primals = tuple(replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True))
    return replace(problem, primals=primals)
