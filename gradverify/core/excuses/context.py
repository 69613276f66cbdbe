"""The input of an excuse, and rows of the Jacobian grouped such that one vjp gives all rows of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import many_vjps, row_cotangent
from gradverify.core.backward.vjps import Backward
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.column_groups import GroupKind
from gradverify.core.estimate.directional import STEP, directional_derivatives_at
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.sampler import output_indices as standing
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.magnitudes import any_set
from gradverify.core.model.memory import HELD

COLUMNS_EXAMINED = 96  # columns, or column groups, that an excuse examines
ROW_GROUPS = 64  # row groups that an excuse examines: one vjp each, and per point
_PAIRED, _FILLED = 4096, 16_000_000  # all pairs of rows are compared up to so many rows, and numbers in them
_ROUNDS = 8  # of adding rows to a group, each time those that precede all of their neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcuseContext:
    """Some column groups with mismatching entries."""

    context: JudgingContext
    backward: Backward
    chosen: Tensor  # (C,) the column groups that the verdicts are on
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroups:
    """Groups of rows without a common input: one vjp gives all rows of a group."""

    outputs: Tensor  # (k,) the rows
    group_of: Tensor  # (k,) the group of each row; -1 for rows in no group
    cotangents: Tensor  # (K, m) of each group: the sum of the unit vectors of its outputs

    @property
    def left_out(self) -> Tensor:
        """The outputs whose rows are in no group, because of the limit."""
        return self.outputs[self.group_of < 0]


def group_rows(trial: ExcuseContext, wanted: Tensor, limit: int = ROW_GROUPS) -> RowGroups:
    """Return at most `limit` groups of the rows with entries in the mask `wanted` (C, m), fewer if vjps are long.

    Without a known sparsity pattern, two rows have a common input if both claim a nonzero entry for it.
    """
    context, chosen = trial.context, trial.chosen
    outputs = wanted.any(dim=0).nonzero().squeeze(1)
    column_of = context.column_groups.column_of[:, outputs]
    reaches = column_of >= 0
    if context.column_groups.kind is GroupKind.SINGLE:
        reaches = context.claimed[:, outputs] != 0
        reaches[chosen] |= wanted[:, outputs]
    no_input = len(context.column_groups.colour)
    limit = max(1, min(limit, HELD // max(1, no_input)))
    number = _group_rows(torch.where(reaches, column_of, no_input).T, no_input, limit)
    grouped = number >= 0
    cotangents = torch.zeros(int(number.max()) + 1, len(trial.backward.known_vjp[0]), dtype=torch.float64)
    cotangents[number[grouped].cpu(), standing(context.sampled, outputs[grouped]).cpu()] = 1.0
    return RowGroups(outputs=outputs, group_of=number, cotangents=cotangents)


def vjps_of_groups(backward: Backward, groups: RowGroups) -> Tensor:
    """Return the vjp of each row group, (K, n)."""
    scale = row_cotangent(backward)
    vjps = many_vjps(backward, scale * groups.cotangents)
    return vjps if scale == 1.0 else vjps / scale


def entries_from_vjps(vjps: Tensor, groups: RowGroups, column_of: Tensor) -> Tensor:
    """Return the entries with these columns, (C, m), from the vjps (K, n) of row groups; 0 for rows in no group."""
    columns = column_of[:, groups.outputs]
    present = (groups.group_of >= 0) & (columns >= 0)
    entries = torch.zeros(column_of.shape, dtype=vjps.dtype, device=vjps.device)
    entries[:, groups.outputs] = torch.where(present, vjps[groups.group_of.clamp(min=0), columns.clamp(min=0)], 0.0)
    return entries


def derivatives_by(context: JudgingContext, column: int, displacements: Iterable[Tensor], step: float = STEP) -> Tensor:
    """Return the derivatives by one input coordinate at displaced points, (N, m), by differences with this step."""
    length = own_or_shared(context.lengths)
    found = directional_derivatives_at(context.sampled, displacements, [zero_outside(length, column)], step)
    return found.squeeze(1) / length[column]


def _group_rows(reach: Tensor, no_input: int, limit: int) -> Tensor:
    """Return the group of each row (k,), -1 beyond `limit`; `reach` (k, M) holds its inputs, or `no_input`."""
    number = torch.full_like(reach[:, 0], -1)
    generator = torch.Generator().manual_seed(0)
    if int(torch.bincount(reach.reshape(-1), minlength=no_input + 1)[:no_input].max()) == len(reach):  # common to all
        drawn = torch.randperm(len(reach), generator=generator)[:limit].to(reach.device)
        number[drawn] = torch.arange(len(drawn), device=reach.device)
        return number
    if len(reach) <= _PAIRED and len(reach) * no_input <= _FILLED:
        return _group_by_pairs(reach, no_input, limit, generator)
    for group in range(limit):
        taken = torch.zeros(no_input + 1, dtype=torch.bool, device=reach.device)
        for _ in range(_ROUNDS):
            free = ((number < 0) & ~taken[reach].any(dim=1)).nonzero().squeeze(1)
            if not len(free):
                break
            chosen = free[_precedes_neighbours(reach[free], no_input, generator)]
            number[chosen] = group
            taken[reach[chosen]] = True
            taken[no_input] = False
    return number


def _group_by_pairs(reach: Tensor, no_input: int, limit: int, generator: torch.Generator) -> Tensor:
    """Return the group of each row, as `_group_rows` does; each group greedily takes every row that still fits."""
    order = torch.randperm(len(reach), generator=generator).to(reach.device)
    filled = torch.zeros(len(reach), no_input + 1, dtype=torch.float32, device=reach.device)
    filled = filled.scatter_(1, reach[order], 1.0)[:, :no_input]
    disjoint = filled @ filled.T == 0
    number = torch.full_like(order, -1)
    for group in range(limit):
        free = number < 0
        while any_set(free):
            first = int(free.view(torch.uint8).argmax())
            number[first] = group
            free &= disjoint[first]
            free[first] = False
    return torch.empty_like(number).index_copy_(0, order, number)


def _precedes_neighbours(reach: Tensor, no_input: int, generator: torch.Generator) -> Tensor:
    """Mask of rows that precede all rows with a common input, in a random order; (k,)."""
    rank = torch.randperm(len(reach), generator=generator).to(reach.device).unsqueeze(1).expand_as(reach)
    first = torch.full((no_input + 1,), len(reach), device=reach.device)
    first.scatter_reduce_(0, reach.reshape(-1), rank.reshape(-1), "amin")
    return ((first[reach] == rank) | (reach == no_input)).all(dim=1)


Excuse = Callable[[ExcuseContext, Judged], Judged]  # verdicts (C, m) before and after; only mismatches change
