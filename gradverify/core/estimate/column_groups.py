"""Which coordinates are moved together, and to which of them a change of an output is due.

In the simplest case every coordinate is a move of its own. Where columns of the Jacobian have no output in common, one
move serves them all (Curtis, Powell & Reid, J. Inst. Math. Appl. 13, 1974), and `owner` tells them apart again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from gradverify.core.model.magnitudes import any_set


class GroupKind(Enum):
    """How coordinates are put together."""

    SINGLE = "single"  # one coordinate per move
    SHARED = "shared"  # several coordinates per move


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGroups:
    """M moves of n coordinates, seen by m outputs."""

    kind: GroupKind
    colour: Tensor  # (n,) the move that each coordinate belongs to
    column_of: Tensor  # (M, m) the coordinate that a change of each output is due to; -1 where none can be
    direct: bool = False  # one move, in which every output is due to the coordinate of its own number
    full: bool = False  # known to have an owner for every entry
    isolated: bool = False  # the outputs looked at have been seen to depend on nobody but their owners

    @property
    def count(self) -> int:
        """How many moves there are."""
        return self.column_of.shape[0]


def single_columns(coordinates: int, outputs: int, device: torch.device) -> ColumnGroups:
    """Return one move per coordinate."""
    every = torch.arange(coordinates, device=device)
    return ColumnGroups(kind=GroupKind.SINGLE, colour=every, column_of=every.unsqueeze(1).expand(coordinates, outputs))


def elementwise_groups(coordinates: int, device: torch.device) -> ColumnGroups:
    """Return the one move of all coordinates, each of which is due for the output of its own number."""
    column_of = torch.arange(coordinates, device=device).unsqueeze(0)
    return ColumnGroups(
        kind=GroupKind.SHARED, colour=column_of.new_zeros(1).expand(coordinates), column_of=column_of, direct=True
    )


def groups_by_input(inputs: int, entries: int, device: torch.device) -> ColumnGroups:
    """Return one move per input, of all its entries, each of which is due for the output of its own number."""
    if inputs == 1:
        return elementwise_groups(entries, device)
    column_of = torch.arange(inputs * entries, device=device).view(inputs, entries)
    return ColumnGroups(kind=GroupKind.SHARED, colour=column_of.flatten() // entries, column_of=column_of, full=True)


def of_outputs(column_groups: ColumnGroups, outputs: Tensor | slice) -> ColumnGroups:
    """Return the moves as some of the outputs see them."""
    return replace(column_groups, column_of=column_groups.column_of[:, outputs], direct=False)


def owned(column_groups: ColumnGroups, chosen: Tensor | slice, values: Tensor) -> Tensor:
    """Return `values` (n,) of the coordinate that owns each entry of the chosen moves: (C, 1) or (C, m).

    Where nobody does, that of another of the same move, which goes as far as any: a change is none of an owner's.
    """
    if column_groups.kind is GroupKind.SINGLE:
        return values[chosen].unsqueeze(1)
    if column_groups.direct:
        return values.unsqueeze(0)
    return _looked_up(values, column_or_member(column_groups, chosen))


def by_column(column_groups: ColumnGroups, values: Tensor) -> Tensor:
    """Add up the values of all entries (M, m) that a coordinate owns; (n,)."""
    if column_groups.kind is GroupKind.SINGLE:
        return values.sum(dim=1)
    if column_groups.direct:
        return values[0]
    found = torch.zeros(len(column_groups.colour), dtype=values.dtype, device=values.device)
    return found.scatter_add_(
        0, column_or_member(column_groups, slice(None)).reshape(-1), _of_columns(column_groups, values).reshape(-1)
    )


def largest_by_column(column_groups: ColumnGroups, sizes: Tensor) -> Tensor:
    """Return the largest of the sizes (M, m), none of them negative, of the entries that a coordinate owns; (n,)."""
    if column_groups.kind is GroupKind.SINGLE:
        return sizes.amax(dim=1)
    if column_groups.direct:
        return sizes[0]
    found = torch.zeros(len(column_groups.colour), dtype=sizes.dtype, device=sizes.device)
    return found.scatter_reduce_(0, column_or_member(column_groups, slice(None)).reshape(-1), sizes.reshape(-1), "amax")


def of_columns(column_groups: ColumnGroups, values: Tensor) -> Tensor:
    """Return for every entry the value (n,) of the coordinate that owns it, 0 where none does; (M, m)."""
    if column_groups.kind is GroupKind.SINGLE:
        return values.unsqueeze(1).expand_as(column_groups.column_of)
    if column_groups.direct:
        return values.unsqueeze(0)
    return _of_columns(column_groups, _looked_up(values, column_or_member(column_groups, slice(None))))


def column_or_member(column_groups: ColumnGroups, chosen: Tensor | slice) -> Tensor:
    """Return the owners of the chosen moves' entries, with a coordinate of the same move in place of nobody; (C, m)."""
    column_of = column_groups.column_of[chosen]
    if column_groups.full:
        return column_of
    every = torch.arange(len(column_groups.colour), device=column_of.device)
    first = every.new_full((column_groups.count,), len(every) - 1).scatter_reduce_(
        0, column_groups.colour, every, "amin"
    )
    return torch.where(column_of >= 0, column_of, first[chosen].unsqueeze(1))


def _of_columns(column_groups: ColumnGroups, values: Tensor) -> Tensor:
    """Return the values of all entries (M, m), zero where nobody owns them."""
    return values if column_groups.full else torch.where(column_groups.column_of >= 0, values, 0.0)


def _looked_up(values: Tensor, places: Tensor) -> Tensor:
    return values.index_select(0, places.reshape(-1)).view(places.shape)  # a quarter of the time of values[places]


def members(column_groups: ColumnGroups, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the coordinates to displace for the chosen moves and, of each, the position of its move in `chosen`.

    Both are (k,), the coordinates in order. Those that own none of isolated outputs stay where they are.
    """
    if column_groups.kind is GroupKind.SINGLE:
        return chosen, torch.arange(len(chosen), device=chosen.device)
    if column_groups.direct:
        return torch.arange(len(column_groups.colour), device=chosen.device), torch.zeros_like(column_groups.colour)
    if len(chosen) == column_groups.count and not column_groups.isolated:
        return torch.arange(len(column_groups.colour), device=chosen.device), column_groups.colour
    position = torch.full((column_groups.count,), -1, dtype=torch.long, device=chosen.device)
    position[chosen] = torch.arange(len(chosen), device=chosen.device)
    if is_complete_for(column_groups, chosen):
        inside = torch.unique(column_groups.column_of[chosen])
        return inside, position[column_groups.colour[inside]]
    place = position[column_groups.colour]
    inside = (place >= 0).nonzero().squeeze(1)
    return inside, place[inside]


def is_complete_for(column_groups: ColumnGroups, chosen: Tensor) -> bool:
    """Tell whether nobody else need be displaced: a change of any output is due to someone in each chosen move."""
    return column_groups.isolated and not any_set(column_groups.column_of[chosen] < 0)
