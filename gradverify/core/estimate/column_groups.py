"""Groups of input coordinates that are displaced together, and the column that each entry belongs to.

In the simplest case every coordinate is its own group. Columns of the Jacobian that share no row can be displaced
together (Curtis, Powell & Reid, J. Inst. Math. Appl. 13, 1974); `column_of` then assigns each output's change to one of
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGroups:
    """M groups of n coordinates, for m outputs."""

    group_of: Tensor  # (n,) the group of each coordinate
    column_of: Tensor  # (M, m) the coordinate that changes each output when a group is displaced; -1 where none does
    single: bool = False  # True if each coordinate is a group of its own
    complete: bool = False  # True if every entry is known to have a column

    @property
    def count(self) -> int:
        """Number of groups M."""
        return self.column_of.shape[0]


def single_columns(coordinates: int, outputs: int, device: torch.device) -> ColumnGroups:
    """Return one group per coordinate."""
    columns = torch.arange(coordinates, device=device)
    return ColumnGroups(single=True, group_of=columns, column_of=columns.unsqueeze(1).expand(coordinates, outputs))


def groups_by_input(inputs: int, entries: int, device: torch.device) -> ColumnGroups:
    """Return one group per input, holding all its entries; output i depends only on entry i of each input."""
    column_of = torch.arange(inputs * entries, device=device).view(inputs, entries)
    return ColumnGroups(group_of=column_of.flatten() // entries, column_of=column_of, complete=True)


def groups_of_outputs(column_groups: ColumnGroups, outputs: Tensor | slice) -> ColumnGroups:
    """Restrict the groups to the given outputs."""
    return replace(column_groups, column_of=column_groups.column_of[:, outputs])


def value_of_column(column_groups: ColumnGroups, chosen: Tensor | slice, values: Tensor) -> Tensor:
    """Return `values` (..., n) at the column of each entry of the chosen groups; (..., C, 1) or (..., C, m).

    Entries without a column take the value of another coordinate of their group: no change is expected there.
    """
    if column_groups.single:
        return values[..., chosen].unsqueeze(-1)
    return _values_at(values, column_or_member(column_groups, chosen))


def spread_to_entries(column_groups: ColumnGroups, values: Tensor) -> Tensor:
    """Return `values` (n,) at the column of each entry, 0 for entries without a column; (M, m)."""
    if column_groups.single:
        return values.unsqueeze(1).expand_as(column_groups.column_of)
    return _masked(column_groups, _values_at(values, column_or_member(column_groups, slice(None))))


def column_or_member(column_groups: ColumnGroups, chosen: Tensor | slice) -> Tensor:
    """Return the column of each entry of the chosen groups, (C, m).

    Entries without a column get the first coordinate of their group.
    """
    column_of = column_groups.column_of[chosen]
    if column_groups.complete:
        return column_of
    coordinates = torch.arange(len(column_groups.group_of), device=column_of.device)
    first_member = coordinates.new_full((column_groups.count,), len(coordinates) - 1).scatter_reduce_(
        0, column_groups.group_of, coordinates, "amin"
    )
    return torch.where(column_of >= 0, column_of, first_member[chosen].unsqueeze(1))


def reduced_by_column(column_groups: ColumnGroups, values: Tensor, reduction: Literal["sum", "amax"]) -> Tensor:
    """Return the sum of the entries (M, m) of each column, or the largest if none is negative; (n,)."""
    if column_groups.single:
        return values.sum(dim=1) if reduction == "sum" else values.amax(dim=1)
    columns, entries = column_or_member(column_groups, slice(None)).reshape(-1), _masked(column_groups, values)
    return values.new_zeros(len(column_groups.group_of)).scatter_reduce_(0, columns, entries.reshape(-1), reduction)


def _masked(column_groups: ColumnGroups, values: Tensor) -> Tensor:
    """Return the entries (M, m) with those that have no column set to zero."""
    return values if column_groups.complete else torch.where(column_groups.column_of >= 0, values, 0.0)


def _values_at(values: Tensor, columns: Tensor) -> Tensor:
    # Four times as fast as values[..., columns].
    return values.index_select(-1, columns.reshape(-1)).view(*values.shape[:-1], *columns.shape)


def members(column_groups: ColumnGroups, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the coordinates to displace for the chosen groups, and the index into `chosen` of each one's group.

    Both are (k,), with the coordinates in ascending order.
    """
    if column_groups.single:
        return chosen, torch.arange(len(chosen), device=chosen.device)
    if len(chosen) == column_groups.count:
        return torch.arange(len(column_groups.group_of), device=chosen.device), column_groups.group_of
    index_in_chosen = torch.full((column_groups.count,), -1, dtype=torch.long, device=chosen.device)
    index_in_chosen[chosen] = torch.arange(len(chosen), device=chosen.device)
    positions = index_in_chosen[column_groups.group_of]
    moving = (positions >= 0).nonzero().squeeze(1)
    return moving, positions[moving]


def disjoint_rows(reach: Tensor, none: int, rank: Tensor, limit: int) -> Tensor:
    """Return the group of each of k rows without a common column, -1 for rows that need more than `limit` groups; (k,).

    `reach` (k, M) holds the columns of each row, or `none`, which is larger. Each group takes the row of lowest rank,
    then every other row that still fits, by `rank` (k,).
    """
    group_of, left = torch.full_like(rank, -1), torch.arange(len(rank), device=rank.device)
    for group in range(limit):
        if not len(left):
            break
        free = left
        while len(free):
            columns, own = reach[free], rank[free].unsqueeze(1)
            first = torch.full((none + 1,), len(rank), device=rank.device)
            first.scatter_reduce_(0, columns.reshape(-1), own.expand_as(columns).reshape(-1), "amin")
            fits = ((first[columns] == own) | (columns == none)).all(dim=1)  # before all rows with a common column
            group_of[free[fits]] = group
            taken = torch.zeros(none + 1, dtype=torch.bool, device=rank.device)
            taken[columns[fits]] = True
            taken[none] = False
            free = free[~fits & ~taken[columns].any(dim=1)]
        left = left[group_of[left] < 0]
    return group_of
