"""Rows whose claims are wrong along a direction in which all nearby smooth pieces have the same derivative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.tolerance import NEGLIGIBLE
from gradverify.core.estimate.column_groups import disjoint_rows, spread_to_entries
from gradverify.core.estimate.directional import DISTANCE, STEP, directional_derivatives_at
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.tuning import NEARBY_POINTS

_DIRECTIONS = 3  # random directions, besides those of all kinked coordinates and of all coordinates
_ALL = 1  # index of the direction of all coordinates
SAME_DERIVATIVE = 1e-4  # of the sum of the terms: derivatives of pieces that differ by less are the same
CLEARLY_WRONG = 30.0  # times the tolerated difference between pieces: a claim off by more belongs to no piece
ABOVE_NOISE = 8.0  # times the noise: least significant difference
ASIDE = 2.0**-3  # relative distance of points from the line that they are near to
_GROUPS = 4  # groups of rows without a common input that are examined


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An output with several inputs, some of them at a kink, and the direction in which its claim may be wrong."""

    index: int  # index among the rows examined
    chosen: Tensor  # (k,) column groups of its entries along the direction
    inputs: Tensor  # (k,) coordinates
    kinked: Tensor  # (k,) which entries are at a kink
    direction: Tensor  # (k,) displacement of the inputs; the largest entry is 1
    length: float  # smallest length scale of the inputs
    negligible: float  # derivatives along the direction that are smaller are negligible


def suspects(near: JudgingContext, kinked: Tensor, generator: torch.Generator) -> Iterator[Row]:
    """Yield the rows whose claims are wrong along a direction in which nearby pieces do not differ; worst first."""
    length = own_or_shared(near.lengths)
    at_kink, present = (torch.zeros_like(length, dtype=torch.bool) for _ in range(2))
    at_kink[near.column_groups.column_of[kinked]] = True
    present[near.column_groups.column_of[near.column_groups.column_of >= 0]] = True
    directions = [torch.where(coordinates, length[coordinates].min(), 0.0) for coordinates in (at_kink, present)]
    directions += [torch.where(at_kink, random_magnitudes(length, generator), 0.0) for _ in range(_DIRECTIONS)]
    half = [DISTANCE * random_magnitudes(length, generator) for _ in range(NEARBY_POINTS // 2)]
    nearby = [*half, *(-place for place in half)]  # opposite points: both sides of a kink in a sum of inputs
    found = directional_derivatives_at(near.sampled, nearby, directions).permute(2, 0, 1)  # (rows, pieces, directions)
    claimed = torch.stack([_terms(near, direction).sum(dim=0) for direction in directions], dim=1)
    sizes = torch.stack([_terms(near, direction).abs().sum(dim=0) for direction in directions], dim=1)
    steepest, reach = found.abs().amax(dim=1), torch.stack([direction.abs().amax() for direction in directions])
    # For claims that are zero up to rounding.
    least = NEGLIGIBLE * (steepest / reach).nan_to_num(0.0, 0.0, 0.0).amax(dim=1)
    size = torch.maximum(sizes, steepest).maximum(least.unsqueeze(1) * reach).clamp(min=torch.finfo(torch.float64).tiny)
    noise = (near.noise.level.unsqueeze(1) / (STEP * size)).amax(dim=1)
    usable = torch.isfinite(found).flatten(1).all(dim=1) & torch.isfinite(claimed).all(dim=1) & torch.isfinite(noise)
    same = SAME_DERIVATIVE + ABOVE_NOISE * torch.where(usable, noise, 0.0)
    found = torch.where(usable[:, None, None], found / size.unsqueeze(1), 0.0)
    error = torch.where(usable.unsqueeze(1), claimed / size - found.mean(dim=1), 0.0)
    centred = found - found.mean(dim=1, keepdim=True)
    same_and_wrong = (centred.abs().amax(dim=1) <= same.unsqueeze(1)) & (
        error.abs() > CLEARLY_WRONG * same.unsqueeze(1)
    )
    weights = _combined(centred, error, same)
    for number in (_ALL, 0):
        weights[same_and_wrong[:, number]] = 0.0
        weights[same_and_wrong[:, number], number] = error[same_and_wrong[:, number], number]
    misfit = weights.norm(dim=1)
    wrong = (misfit > CLEARLY_WRONG * same).nonzero().squeeze(1)
    for number in wrong[misfit[wrong].argsort(descending=True, stable=True)].tolist():
        concerned = kinked[:, number] if weights[number, _ALL] == 0 else near.column_groups.column_of[:, number] >= 0
        chosen = concerned.nonzero().squeeze(1)
        inputs = near.column_groups.column_of[chosen, number]
        direction = torch.stack([each[inputs] for each in directions], dim=1) @ (weights[number] / size[number])
        largest = direction[direction.abs().argmax()]
        if float(largest) != 0:
            yield Row(
                index=number,
                chosen=chosen,
                inputs=inputs,
                kinked=kinked[chosen, number],
                direction=direction / largest,
                length=float(length[inputs].min()),
                negligible=float(least[number]),
            )


def _combined(centred: Tensor, error: Tensor, same: Tensor) -> Tensor:
    """Return the combination of directions in which a claim is wrong and the pieces do not differ, (rows, q).

    `centred` (rows, pieces, q) are derivatives along the directions minus their mean, `error` (rows, q) is the claim
    minus that mean. Derivatives that differ by less than `same` (rows,) are equal.
    """
    used = torch.ones_like(error)
    used[:, _ALL] = 0.0
    _, spread, axes = torch.linalg.svd(centred * used.unsqueeze(1), full_matrices=False)
    flat = spread <= (same * NEARBY_POINTS**0.5).unsqueeze(1)  # the pieces do not differ along these
    components = torch.where(flat, (axes @ (error * used).unsqueeze(2)).squeeze(2), 0.0)
    weights: Tensor = (components.unsqueeze(1) @ axes).squeeze(1) * used
    return weights


def disjoint_groups(near: JudgingContext, rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield groups of rows without a common input, formed greedily; at most a few groups."""
    if not rows:
        return
    column_of = near.column_groups.column_of[:, [row.index for row in rows]].T
    inputs, rank = len(near.sampled.point), torch.arange(len(rows), device=column_of.device)
    groups = disjoint_rows(torch.where(column_of >= 0, column_of, inputs), inputs, rank, _GROUPS).tolist()
    for number in range(max(groups) + 1):
        yield [row for row, group in zip(rows, groups, strict=True) if group == number]


def _terms(near: JudgingContext, direction: Tensor) -> Tensor:
    """Return the claims times the direction: their sum over M is the claimed derivative of each row; (M, m)."""
    return near.claimed * spread_to_entries(near.column_groups, direction)
