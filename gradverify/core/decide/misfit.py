"""Rows whose claim, each entry fine alone, is off along a direction in which the pieces close by do not differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.estimate.column_groups import of_columns
from gradverify.core.estimate.nearby_gradients import DISTANCE, STEP, slopes
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import any_set

_DIRECTIONS = 3  # random ones, beside those of all kinked coordinates, and of all coordinates, rising alike
_EVERY = 1  # number of the direction of all coordinates
_PIECES = 8  # points close by at which they are taken
ALIKE = 1e-4  # derivatives of pieces that differ by no more than this part of their terms are the same
CLEARLY = 30.0  # a claim off by this many times what they may differ is none of any piece
AUDIBLE = 8.0  # how far above the noise a difference must stand
_FAINT = 1e-6  # of the steepest that a row is: a claim of no more than that is as good as none
_GROUPS = 4  # of outputs without an input in common, looked at together before they are accused


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One output of several inputs, some of them kinked, and the direction in which its claim may be wrong."""

    number: int  # among the rows looked at
    chosen: Tensor  # (k,) of its entries along the direction
    inputs: Tensor  # (k,) coordinates
    kinked: Tensor  # (k,) which entries are at a kink
    direction: Tensor  # (k,) the largest is 1
    length: float  # of the shortest input
    least: float  # what derivatives along the direction are of no consequence


def suspects(near: JudgingContext, kinked: Tensor, generator: torch.Generator) -> Iterator[Row]:
    """Yield the rows whose claim is off along a direction in which the pieces close by do not differ; worst first."""
    length = own_or_shared(near.lengths)
    mine, every = (torch.zeros_like(length, dtype=torch.bool) for _ in range(2))
    mine[near.column_groups.column_of[kinked]] = True
    every[near.column_groups.column_of[near.column_groups.column_of >= 0]] = True
    directions = [torch.where(some, length[some].min(), 0.0) for some in (mine, every)]
    directions += [torch.where(mine, scattered(length, generator), 0.0) for _ in range(_DIRECTIONS)]
    half = [DISTANCE * scattered(length, generator) for _ in range(_PIECES // 2)]
    around = [*half, *(-place for place in half)]  # a kink in one sum of inputs shows both its sides
    found = slopes(near.sampled, around, directions).permute(2, 0, 1)  # (rows, pieces, directions)
    claimed = torch.stack([_terms(near, direction).sum(dim=0) for direction in directions], dim=1)
    sizes = torch.stack([_terms(near, direction).abs().sum(dim=0) for direction in directions], dim=1)
    steepest, reach = found.abs().amax(dim=1), torch.stack([direction.abs().amax() for direction in directions])
    least = _FAINT * (steepest / reach).nan_to_num(0.0, 0.0, 0.0).amax(dim=1)  # where a claim is zero but for rounding
    size = torch.maximum(sizes, steepest).maximum(least.unsqueeze(1) * reach).clamp(min=torch.finfo(torch.float64).tiny)
    noise = (near.noise.level.unsqueeze(1) / (STEP * size)).amax(dim=1)
    usable = torch.isfinite(found).flatten(1).all(dim=1) & torch.isfinite(claimed).all(dim=1) & torch.isfinite(noise)
    same = ALIKE + AUDIBLE * torch.where(usable, noise, 0.0)
    found = torch.where(usable[:, None, None], found / size.unsqueeze(1), 0.0)
    off = torch.where(usable.unsqueeze(1), claimed / size - found.mean(dim=1), 0.0)
    centred = found - found.mean(dim=1, keepdim=True)
    rising = (centred.abs().amax(dim=1) <= same.unsqueeze(1)) & (off.abs() > CLEARLY * same.unsqueeze(1))
    weights = _combined(centred, off, same)
    for number in (_EVERY, 0):
        weights[rising[:, number]] = 0.0
        weights[rising[:, number], number] = off[rising[:, number], number]
    misfit = weights.norm(dim=1)
    wrong = (misfit > CLEARLY * same).nonzero().squeeze(1)
    for number in wrong[misfit[wrong].argsort(descending=True, stable=True)].tolist():
        concerned = kinked[:, number] if weights[number, _EVERY] == 0 else near.column_groups.column_of[:, number] >= 0
        chosen = concerned.nonzero().squeeze(1)
        inputs = near.column_groups.column_of[chosen, number]
        direction = torch.stack([each[inputs] for each in directions], dim=1) @ (weights[number] / size[number])
        largest = direction[direction.abs().argmax()]
        if float(largest) != 0:
            yield Row(
                number=number,
                chosen=chosen,
                inputs=inputs,
                kinked=kinked[chosen, number],
                direction=direction / largest,
                length=float(length[inputs].min()),
                least=float(least[number]),
            )


def _combined(centred: Tensor, off: Tensor, same: Tensor) -> Tensor:
    """Return the combinations of directions of kinked coordinates that are off where no piece differs, (rows, q).

    `centred` (rows, pieces, q) are derivatives along the directions less their mean, `off` (rows, q) is what backward
    says beyond the mean, and derivatives that differ by `same` (rows,) are equal.
    """
    used = torch.ones_like(off)
    used[:, _EVERY] = 0.0
    _, spread, axes = torch.linalg.svd(centred * used.unsqueeze(1), full_matrices=False)
    flat = spread <= (same * _PIECES**0.5).unsqueeze(1)  # the pieces do not differ along these
    shares = torch.where(flat, (axes @ (off * used).unsqueeze(2)).squeeze(2), 0.0)
    weights: Tensor = (shares.unsqueeze(1) @ axes).squeeze(1) * used
    return weights


def groups(near: JudgingContext, rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield sets of rows that have no input in common, as few as hold them all, and not more than a few."""
    left = list(rows)
    for _ in range(_GROUPS):
        taken = torch.zeros_like(near.sampled.point, dtype=torch.bool)
        group: list[Row] = []
        rest: list[Row] = []
        for row in left:
            column_of = near.column_groups.column_of[:, row.number]
            reach = column_of[column_of >= 0]
            if any_set(taken[reach]):
                rest.append(row)
            else:
                taken[reach] = True
                group.append(row)
        if group:
            yield group
        left = rest


def _terms(near: JudgingContext, direction: Tensor) -> Tensor:
    """Return the terms that make up what backward says of each row along a direction, (M, m)."""
    return near.claimed * of_columns(near.column_groups, direction)
