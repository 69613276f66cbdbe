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
from gradverify.core.estimate.column_groups import GroupKind, disjoint_rows
from gradverify.core.estimate.directional import STEP, directional_derivatives_at
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.sampler import output_indices as standing
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.memory import HELD

COLUMNS_EXAMINED = 96  # columns, or column groups, that an excuse examines
ROW_GROUPS = 64  # row groups that an excuse examines: one vjp each, and per point


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
    order = torch.randperm(len(reach), generator=torch.Generator().manual_seed(0)).to(reach.device)
    rank = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    if int(torch.bincount(reach.reshape(-1), minlength=no_input + 1)[:no_input].max()) == len(reach):  # common to all
        return torch.where(rank < limit, rank, -1)
    return disjoint_rows(reach, no_input, rank, limit)


Excuse = Callable[[ExcuseContext, Judged], Judged]  # verdicts (C, m) before and after; only mismatches change
