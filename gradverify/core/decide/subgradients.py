"""Claims at a kink judged by row: each lies between its one-sided derivatives, but the row is no subgradient.

The claims at a kink should lie in the convex hull of the gradients of the smooth pieces that meet there (Clarke's
generalised gradient), and so in their affine hull. That is, along a direction in which all pieces have the same
derivative, the claim must have it too. For example, a maximum rises with its two tied inputs if these rise together.
Such directions are combinations of a few random ones along which the derivatives of nearby pieces do not differ. A row
is wrong only if further nearby points, and both sides of the point itself, show the same derivative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.compare import NEGLIGIBLE, SIGNIFICANT
from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.directional import DISTANCE, RANKS, STEP, at_ranks, directional_derivatives_at
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.column_groups import disjoint_rows, spread_to_entries
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.forward.sampler import output_indices, outputs_near
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import TINY, any_set
from gradverify.core.tuning import CLEARLY_ABOVE, FEW, NEARBY_POINTS, SMALL_PART

_ROWS = 4096  # outputs examined


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongDirection:
    """A direction, at a kink, in which the function has a derivative and the claim differs from it."""

    output: int  # coordinate
    inputs: tuple[int, ...]  # coordinates
    direction: tuple[float, ...]  # displacement of each input
    rise: float  # numeric derivative of the output along the direction
    claimed: float  # claimed derivative along the direction


def judge_subgradients(context: JudgingContext, judged: Judged) -> tuple[Judged, tuple[WrongDirection, ...]]:
    """Turn accepted entries (M, m) at kinks into NOT_A_SUBGRADIENT if their row is no subgradient.

    Returns the verdicts, and the directions in which rows are wrong. Costs nothing if no output has several inputs at a
    kink, otherwise 48 forwards, and for each direction in which rows are suspect 82 more and two per rank tried among
    the other inputs.
    """
    coarse = not context.sampled.dtypes <= {torch.float64, torch.complex128}  # the steps need double precision
    if context.sampled.problem.order > 1 or coarse:
        return judged, ()
    kinked, rows = _rows_at_kinks(context, judged.code)
    if not len(rows):
        return judged, ()
    generator = torch.Generator().manual_seed(context.settings.seed + 5)
    near, kinked = focused(context, rows), kinked[:, rows]
    wrong_rows: list[_WrongRow] = []
    for suspects in _suspects(near, kinked, generator):
        known = {wrong.row.index for wrong in wrong_rows}
        for group in _disjoint_groups(near, [row for row in suspects if row.index not in known]):
            wrong_rows += _confirmed(near, group, generator)
    if not wrong_rows:
        return judged, ()
    return _with_wrong_rows(context, rows, judged, wrong_rows), tuple(_reported(near, wrong) for wrong in wrong_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """An output with several inputs, some of them at a kink, and the direction in which its claim may be wrong."""

    index: int  # index among the rows examined
    chosen: Tensor  # (k,) column groups of its entries along the direction
    inputs: Tensor  # (k,) coordinates
    kinked: Tensor  # (k,) which entries are at a kink
    direction: Tensor  # (k,) displacement of the inputs; the largest entry is 1
    length: float  # smallest length scale of the inputs
    negligible: float  # derivatives along the direction that are smaller are negligible


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrongRow:
    """A row that is no subgradient, and the derivatives along its direction."""

    row: _Row
    rise: float  # numeric
    claimed: float
    unsure: float  # uncertainty of both


def _suspects(near: JudgingContext, kinked: Tensor, generator: torch.Generator) -> Iterator[list[_Row]]:
    """Yield the rows whose claims are wrong along a direction in which nearby pieces do not differ.

    First the direction is that of the kinked coordinates, then that of all, then a combination of random ones: further
    pieces may differ along one of them, and not along the next.
    """
    length = near.lengths.nonzero
    at_kink, present = (torch.zeros_like(length, dtype=torch.bool) for _ in range(2))
    at_kink[near.column_groups.column_of[kinked]] = True
    present[near.column_groups.column_of[near.column_groups.column_of >= 0]] = True
    kinked_alike, all_alike = (torch.where(moved, length[moved].min(), 0.0) for moved in (at_kink, present))
    random = [torch.where(at_kink, random_magnitudes(length, generator), 0.0) for _ in range(FEW)]
    directions = [kinked_alike, *random, all_alike]
    half = [DISTANCE * random_magnitudes(length, generator) for _ in range(NEARBY_POINTS // 2)]
    nearby = [*half, *(-place for place in half)]  # opposite points: both sides of a kink in a sum of inputs
    found = directional_derivatives_at(near.sampled, nearby, directions).permute(2, 0, 1)  # (rows, pieces, directions)
    claimed = torch.stack([_terms(near, direction).sum(dim=0) for direction in directions], dim=1)
    sizes = torch.stack([_terms(near, direction).abs().sum(dim=0) for direction in directions], dim=1)
    steepest, reach = found.abs().amax(dim=1), torch.stack([direction.abs().amax() for direction in directions])
    # For claims that are zero up to rounding.
    least = NEGLIGIBLE * (steepest / reach).nan_to_num(0.0, 0.0, 0.0).amax(dim=1)
    size = torch.maximum(sizes, steepest).maximum(least.unsqueeze(1) * reach).clamp(min=TINY)
    noise = (near.noise.level.unsqueeze(1) / (STEP * size)).amax(dim=1)
    usable = torch.isfinite(found).flatten(1).all(dim=1) & torch.isfinite(claimed).all(dim=1) & torch.isfinite(noise)
    same = SIGNIFICANT + BAR_FACTOR * torch.where(usable, noise, 0.0)
    found = torch.where(usable[:, None, None], found / size.unsqueeze(1), 0.0)
    error = torch.where(usable.unsqueeze(1), claimed / size - found.mean(dim=1), 0.0)
    centred = found - found.mean(dim=1, keepdim=True)
    same_and_wrong = (centred.abs().amax(dim=1) <= same.unsqueeze(1)) & (
        error.abs() > CLEARLY_ABOVE * same.unsqueeze(1)
    )
    alone = torch.diag_embed(torch.where(same_and_wrong, error, 0.0))  # (rows, q, q) one direction each
    for weights in (alone[:, 0], alone[:, -1], _combined(centred, error, same)):
        misfit = weights.norm(dim=1) / same
        yield list(_rows_wrong_along(near, kinked, directions, weights / size, misfit, least))


def _rows_wrong_along(
    near: JudgingContext,
    kinked: Tensor,
    directions: Sequence[Tensor],
    weights: Tensor,
    misfit: Tensor,
    negligible: Tensor,
) -> Iterator[_Row]:
    """Yield the rows with a large `misfit` (rows,) along the directions combined by `weights` (rows, q); worst first.

    `negligible` (rows,) is that of `_Row`.
    """
    length, columns = near.lengths.nonzero, near.column_groups.column_of
    wrong = (misfit > CLEARLY_ABOVE).nonzero().squeeze(1)
    for number in wrong[misfit[wrong].argsort(descending=True, stable=True)].tolist():
        concerned = kinked[:, number] if weights[number, -1] == 0 else columns[:, number] >= 0
        chosen = concerned.nonzero().squeeze(1)
        inputs = columns[chosen, number]
        direction = torch.stack([each[inputs] for each in directions], dim=1) @ weights[number]
        largest = direction[direction.abs().argmax()]
        yield _Row(
            index=number,
            chosen=chosen,
            inputs=inputs,
            kinked=kinked[chosen, number],
            direction=direction / largest,
            length=float(length[inputs].min()),
            negligible=float(negligible[number]),
        )


def _disjoint_groups(near: JudgingContext, rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Yield groups of rows without a common input, formed greedily; at most a few groups."""
    if not rows:
        return
    column_of = near.column_groups.column_of[:, [row.index for row in rows]].T
    inputs, rank = len(near.sampled.point), torch.arange(len(rows), device=column_of.device)
    groups = disjoint_rows(torch.where(column_of >= 0, column_of, inputs), inputs, rank, FEW).tolist()
    for number in range(max(groups) + 1):
        yield [row for row, group in zip(rows, groups, strict=True) if group == number]


def _combined(centred: Tensor, error: Tensor, same: Tensor) -> Tensor:
    """Return the combination of directions in which a claim is wrong and the pieces do not differ, (rows, q).

    `centred` (rows, pieces, q) are derivatives along the directions minus their mean, `error` (rows, q) is the claim
    minus that mean. Derivatives that differ by less than `same` (rows,) are equal.
    """
    used = torch.ones_like(error)
    used[:, -1] = 0.0  # the direction of all coordinates
    _, spread, axes = torch.linalg.svd(centred * used.unsqueeze(1), full_matrices=False)
    flat = spread <= (same * NEARBY_POINTS**0.5).unsqueeze(1)  # the pieces do not differ along these
    components = torch.where(flat, (axes @ (error * used).unsqueeze(2)).squeeze(2), 0.0)
    weights: Tensor = (components.unsqueeze(1) @ axes).squeeze(1) * used
    return weights


def _terms(near: JudgingContext, direction: Tensor) -> Tensor:
    """Return the claims times the direction: their sum over M is the claimed derivative of each row; (M, m)."""
    return near.claimed * spread_to_entries(near.column_groups, direction)


def _rows_at_kinks(context: JudgingContext, code: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mask of entries accepted at a kink, (M, m), and the outputs with several of them and no mismatch."""
    kinked, present = code == Code.KINK, context.column_groups.column_of >= 0
    several = kinked.sum(dim=0) > 1
    if any_set(several):
        several &= (kinked | (code == Code.MATCH) | ~present).all(dim=0)
    return kinked, several.nonzero().squeeze(1)[:_ROWS]


def _confirmed(near: JudgingContext, group: Sequence[_Row], generator: torch.Generator) -> Iterator[_WrongRow]:
    """Yield the rows whose claims are wrong along their direction at all nearby points, and on both sides of the point.

    Points near the lines in the direction of the claims are on pieces that random points miss.
    """
    length = near.lengths.nonzero
    direction, claims, signs, equal = (torch.zeros_like(length) for _ in range(4))
    for row in group:
        claimed = near.claimed[row.chosen, row.index]
        direction[row.inputs] = row.length * row.direction
        claims[row.inputs] = row.length * claimed / claimed.abs().max().clamp(min=TINY)
        signs[row.inputs] = row.length * claimed.sign()
        equal[row.inputs] = row.length
    displacements = [
        DISTANCE * (sign * line + SMALL_PART * random_magnitudes(length, generator))
        for line in (claims, signs, equal, direction)
        for sign in (1, -1)
        for _ in range(NEARBY_POINTS // 2)
    ]
    displacements += [DISTANCE * random_magnitudes(length, generator) for _ in range(NEARBY_POINTS)]
    sampled = focused(near, torch.tensor([row.index for row in group], device=length.device)).sampled
    one_sided = [(outputs_near(sampled, sign * STEP * direction) - sampled.value) / (sign * STEP) for sign in (1, -1)]
    # If many inputs are tied, as for a quantile, most pieces depend on other inputs than those of the group.
    in_group = equal > 0
    displacements += [DISTANCE * length * place for place in at_ranks(in_group, ~in_group, RANKS, generator)]
    found = torch.cat(
        [directional_derivatives_at(sampled, displacements, [direction]).squeeze(1), torch.stack(one_sided)]
    )
    for place, row in enumerate(group):
        derivatives = found[:, place] / row.length
        terms = near.claimed[row.chosen, row.index] * row.direction
        size = max(float(terms.abs().sum()), float(derivatives.abs().max()), row.negligible)
        noise = float(near.noise.level[row.index]) / (STEP * row.length)
        tolerance = SIGNIFICANT * size + BAR_FACTOR * noise
        rise, claimed_rise = float(derivatives.mean()), float(terms.sum())
        constant = float(derivatives.max() - derivatives.min()) <= tolerance
        if constant and abs(claimed_rise - rise) > CLEARLY_ABOVE * tolerance:
            yield _WrongRow(row=row, rise=rise, claimed=claimed_rise, unsure=tolerance)


def _with_wrong_rows(context: JudgingContext, rows: Tensor, judged: Judged, wrong_rows: Sequence[_WrongRow]) -> Judged:
    """Return the verdicts with the wrong rows marked; their numeric entries become the nearest right ones."""
    wrong, numeric, bar = torch.zeros_like(judged.kinked), judged.numeric.clone(), judged.bar.clone()
    error, allowed = judged.error.clone(), judged.allowed.clone()
    for found in wrong_rows:
        row, output = found.row, int(rows[found.row.index])
        accused = row.kinked & (row.direction.abs() > NEGLIGIBLE)
        index = (row.chosen[accused], torch.full_like(row.chosen[accused], output))
        share = row.direction[accused] / row.direction[accused].square().sum()
        excess = (found.claimed - found.rise) * share
        wrong[index] = True
        numeric[index] = context.claimed[index] - excess
        bar[index] = found.unsure * share.abs()
        error[index], allowed[index] = excess.abs(), BAR_FACTOR * found.unsure * share.abs()
    rules = [(wrong, Reason.NOT_A_SUBGRADIENT)]
    return decide(judged, rules, numeric=numeric, bar=bar, error=error, allowed=allowed)


def _reported(near: JudgingContext, wrong: _WrongRow) -> WrongDirection:
    """Return the direction for the report; a numeric derivative within its uncertainty becomes 0."""
    row = wrong.row
    nonzero = row.direction.abs() > NEGLIGIBLE
    return WrongDirection(
        output=int(output_indices(near.sampled, torch.tensor([row.index]))[0]),
        inputs=tuple(row.inputs[nonzero].tolist()),
        direction=tuple(row.direction[nonzero].tolist()),
        rise=wrong.rise if abs(wrong.rise) > wrong.unsure else 0.0,
        claimed=wrong.claimed,
    )
