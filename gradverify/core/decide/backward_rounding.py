"""Rounding errors of backward, measured in noisy arithmetic.

In low precision, the error of a claim is its difference from what the same backward returns in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.arithmetic.noisy import BOUNDS, Measure, amplification
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
from gradverify.core.model.magnitudes import any_set, finite_size
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.core.tuning import (
    ALIKE,
    CANCELLATION_UNITS,
    CLEARLY_ABOVE,
    EXAMINED,
    INPUT_EPS,
    LARGEST_CANCELLATION,
    NEARBY_POINTS,
    RESULT_UNITS,
    SUM_UNITS,
)
from gradverify.errors import EvaluationError

_LARGEST_ROUNDING = 2.0**-30  # of the largest in the row: larger errors are not backward's rounding
_RIGHT = 1e-5  # of the entry: error of a right formula in double precision, if rtol is not less
_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowGroups:
    """Groups of rows without a common input: one vjp gives all rows of a group."""

    group_of: Tensor  # (m,) the group of each output's row; -1 for rows in no group
    cotangents: Tensor  # (K, all outputs) of each group: the sum of the unit vectors of its outputs


def excuse_backward_rounding(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Excuse errors that rounding in backward explains.

    A graph whose vjps no longer repeat is marked as worn first, at the cost of a vjp: its mismatches do not count.
    """
    fails_later(context.backward)
    if context.sampled.backward_eps:
        return _excuse_in_low_precision(context, chosen, judged)
    return _excuse_in_float64(context, chosen, judged)


def _excuse_in_float64(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Make errors undetermined that rounding on the way to a claim explains.

    Errors as small as numbers around 1 may leave are excused if that rounding hides no derivative of any consequence.
    """
    small = small_error(context.sampled.eps, context.claimed[:0])
    row_size = finite_size(torch.cat([context.claimed, judged.numeric])).amax(dim=0)
    wrong = (judged.code == Code.MISMATCH) & (judged.error <= (_LARGEST_ROUNDING * row_size).clamp(min=small))
    if not any_set(wrong):
        return judged
    groups = _group_rows(context, chosen, wrong)
    rounding = _rounding_of(context, chosen, context.backward, groups, judged.error.masked_fill(~wrong, torch.inf))
    excused = wrong & (judged.error <= CLEARLY_ABOVE * rounding)
    resolved = is_resolved(rounding, judged.numeric.abs(), of_column_groups(context.allowance, chosen))
    resolved |= judged.error <= ALIKE * rounding
    match = excused & resolved & (judged.error <= small)
    rules = [(excused, Reason.BACKWARD_NOISE), (match, Reason.BACKWARD_RESOLUTION)]
    bar = torch.where(excused, judged.error, judged.bar)
    return _decided(judged, groups, wrong, rules, bar=bar)


def _rounding_of(
    context: JudgingContext, chosen: Tensor, backward: Backward, groups: _RowGroups, errors: Tensor
) -> Tensor:
    """Return how far rounding on the way may move each claim of a backward in float64; (C, m).

    It is 0 if a vjp of all rows at once, each with a random sign, shows that it is clearly below all `errors` (C, m).
    """
    signs = torch.randint(2, (len(groups.cotangents), 1), generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
    at_once = _RowGroups(
        group_of=groups.group_of.clamp(max=0), cotangents=(signs * groups.cotangents).sum(dim=0, keepdim=True)
    )
    vectorises = backward.graph.vectorises and backward.graph.vectorised_calls > 0
    noisy = replace(backward, graph=Graph(reuse=backward.graph.reuse, vectorises=vectorises, is_noisy=True))

    def measured(measure: Measure, groups: _RowGroups) -> Tensor:
        def claims() -> Tensor:
            return _entries(context, chosen, noisy, groups, [torch.zeros_like(context.sampled.point)])[0]

        return _EPS * measure(claims, claims())

    if not all(any_set(errors <= CLEARLY_ABOVE * measured(bound, at_once)) for bound in BOUNDS):
        return torch.zeros_like(errors)
    return measured(amplification, groups)


def _excuse_in_low_precision(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Excuse claims in low precision if the same backward is right in float64.

    Either the error is small and rounding on the way explains it; or the claim lies between those in float64 at points
    within backward's rounding of the inputs, as that of another branch does. Errors that do not exceed the scatter of
    the claims' errors at these points become undetermined, right or not.
    """
    wrong = judged.code == Code.MISMATCH
    groups, claimed, numeric = _group_rows(context, chosen, wrong), context.claimed[chosen], judged.numeric
    in_double = replace(context.backward, problem=context.sampled.problem)

    def at(moves: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the entries in float64, and by how much those in backward's own dtypes differ."""
        wide, own = (_entries(context, chosen, each, groups, moves) for each in (in_double, context.backward))
        return wide, own - torch.where(wide.isnan(), 0.0, wide)

    in_float64, differences = at([torch.zeros_like(context.sampled.point)])
    rtol = min(_RIGHT, context.allowance.rtol)
    right = wrong & ((in_float64[0] - numeric).abs() <= BAR_FACTOR * judged.bar + rtol * numeric.abs())
    wrong_in_float64 = (judged.error > CLEARLY_ABOVE * differences[0].abs()) & in_float64[0].isfinite() & ~right
    if not any_set(wrong & ~wrong_in_float64 & (groups.group_of >= 0)):
        return judged
    generator = torch.Generator().manual_seed(context.settings.seed + 8)
    distance = INPUT_EPS * context.sampled.backward_eps * context.lengths.nonzero
    half = [random_magnitudes(distance, generator) for _ in range(NEARBY_POINTS)]
    nearby = at([*half, *(-move for move in half)])
    in_float64, differences = (torch.cat(both) for both in zip((in_float64, differences), nearby, strict=True))
    small = right & (judged.error <= small_error(context.sampled.backward_eps, context.claimed))
    if any_set(small):
        units = (judged.error * (_EPS / context.sampled.backward_eps)).masked_fill(~small, torch.inf)
        small &= units <= SUM_UNITS * _rounding_of(context, chosen, in_double, groups, units)
    low, high = in_float64.amin(dim=0), in_float64.amax(dim=0)
    branch = right & (claimed >= low - judged.allowed) & (claimed <= high + judged.allowed)
    scatters = wrong & (judged.error <= ALIKE * (differences.amax(dim=0) - differences.amin(dim=0)))
    rules = [(scatters, Reason.BACKWARD_NOISE), (branch, Reason.OTHER_BRANCH), (small, Reason.FLOAT64_BACKWARD)]
    allowed = torch.where(small | branch, torch.maximum(judged.allowed, judged.error), judged.allowed)
    bar = torch.where(scatters, judged.error, judged.bar)
    return _decided(judged, groups, wrong, rules, allowed=allowed, bar=bar)


def small_error(eps: float, claimed: Tensor) -> float:
    """Return the error that rounding of numbers around 1, or around the largest claim, may cause."""
    largest = float(finite_size(claimed).max()) if claimed.numel() else 0.0
    return max(left_by_cancellation(eps), RESULT_UNITS * eps) * max(1.0, largest)


def left_by_cancellation(eps: float) -> float:
    """Return the error that may be left where terms cancel, relative to them, in a precision with this eps."""
    return min(max(LARGEST_CANCELLATION, eps), CANCELLATION_UNITS * eps)


def _decided(
    judged: Judged, groups: _RowGroups, wrong: Tensor, rules: Sequence[tuple[Tensor, Reason]], **values: Tensor
) -> Judged:
    """Return the verdicts after rules on the entries `wrong` (C, m).

    If a rule applies to any of them, those in rows beyond the limit may have the same explanation.
    """
    applies = torch.stack([where.any() for where, _ in rules]).any()
    return decide(judged, [(wrong & (groups.group_of < 0) & applies, Reason.NOT_EXAMINED), *rules], **values)


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
    no_input, all_outputs = len(context.column_groups.group_of), len(context.backward.known_vjp[0])
    limit = EXAMINED  # without vectorisation each row costs a vjp of its own
    if context.backward.graph.vectorises:
        limit = max(limit, HELD // all_outputs)
    limit = max(1, min(limit, HELD // no_input))
    rank = torch.randperm(len(outputs), generator=torch.Generator().manual_seed(0)).to(outputs.device)
    reached = torch.where(reaches, column_of, no_input).T
    if int(torch.bincount(reached.reshape(-1), minlength=no_input + 1)[:no_input].max()) == len(outputs):
        number = torch.where(rank < limit, rank, -1)  # they all have an input in common
    else:
        number = disjoint_rows(reached, no_input, rank, limit)
    grouped = number >= 0
    cotangents = torch.zeros(int(number.max()) + 1, all_outputs, dtype=torch.float64)
    cotangents[number[grouped].cpu(), output_indices(context.sampled, outputs[grouped]).cpu()] = 1.0
    group_of = torch.full((wanted.shape[1],), -1, dtype=torch.long, device=outputs.device)
    group_of[outputs] = number
    return _RowGroups(group_of=group_of, cotangents=cotangents)


def _entries(
    context: JudgingContext, chosen: Tensor, backward: Backward, groups: _RowGroups, moves: Iterable[Tensor]
) -> Tensor:
    """Return the entries from vjps at N displaced points, (N, C, m); nan for rows in no group, or if backward raises.

    The points are rounded to the primals' own dtypes.
    """
    column_of, scale = context.column_groups.column_of[chosen], row_cotangent(backward)
    known = (groups.group_of >= 0) & (column_of >= 0)
    own = [primal.tensor for primal in context.backward.problem.primals]
    entries = []
    for move in moves:
        try:
            there = backward_at(backward, flatten(unflatten(context.sampled.point + move, own)))
            vjps = many_vjps(there, scale * groups.cotangents) / scale
        except EvaluationError:
            vjps = torch.full((len(groups.cotangents), len(move)), torch.nan, dtype=torch.float64, device=move.device)
        entries.append(torch.where(known, vjps[groups.group_of.clamp(min=0), column_of.clamp(min=0)], torch.nan))
    return torch.stack(entries)


def backward_at(backward: Backward, point: Tensor) -> Backward:
    """Return the same backward at another point (n,); raises EvaluationError.

    One graph serves all vjps there if one does at the original point; otherwise each vjp records its own.
    """
    problem = problem_at(backward.problem, point)
    reuse = Reuse.SHARED if backward.graph.reuse is Reuse.SHARED else Reuse.FRESH
    graph = replace(backward.graph, reuse=reuse, vectorised_calls=0)
    return replace(backward, problem=problem, tape=record(problem), graph=graph)


def problem_at(problem: Problem, point: Tensor) -> Problem:
    """Return the problem at another point (n,)."""
    tensors = unflatten(point, [primal.tensor for primal in problem.primals])
    primals = tuple(replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True))
    return replace(problem, primals=primals)
