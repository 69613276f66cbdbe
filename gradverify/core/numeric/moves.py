"""Which coordinates are moved together, and to which of them a change of an output is due.

In the simplest case every coordinate is a move of its own. Where columns of the Jacobian have no output in common, one
move serves them all (Curtis, Powell & Reid, J. Inst. Math. Appl. 13, 1974), and `owner` tells them apart again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from gradverify.core.function.flags import any_set


class Kind(Enum):
    """How coordinates are put together."""

    SINGLE = "single"  # one coordinate per move
    SHARED = "shared"  # several coordinates per move


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """M moves of n coordinates, seen by m outputs."""

    kind: Kind
    colour: Tensor  # (n,) the move that each coordinate belongs to
    owner: Tensor  # (M, m) the coordinate that a change of each output is due to; -1 where none can be
    direct: bool = False  # one move, in which every output is due to the coordinate of its own number
    full: bool = False  # known to have an owner for every entry
    isolated: bool = False  # the outputs looked at have been seen to depend on nobody but their owners

    @property
    def count(self) -> int:
        """How many moves there are."""
        return self.owner.shape[0]


def single_moves(coordinates: int, outputs: int, device: torch.device) -> Moves:
    """Return one move per coordinate."""
    every = torch.arange(coordinates, device=device)
    return Moves(kind=Kind.SINGLE, colour=every, owner=every.unsqueeze(1).expand(coordinates, outputs))


def direct_moves(coordinates: int, device: torch.device) -> Moves:
    """Return the one move of all coordinates, each of which is due for the output of its own number."""
    owner = torch.arange(coordinates, device=device).unsqueeze(0)
    return Moves(kind=Kind.SHARED, colour=owner.new_zeros(1).expand(coordinates), owner=owner, direct=True)


def moves_by_input(inputs: int, entries: int, device: torch.device) -> Moves:
    """Return one move per input, of all its entries, each of which is due for the output of its own number."""
    if inputs == 1:
        return direct_moves(entries, device)
    owner = torch.arange(inputs * entries, device=device).view(inputs, entries)
    return Moves(kind=Kind.SHARED, colour=owner.flatten() // entries, owner=owner, full=True)


def of_outputs(moves: Moves, outputs: Tensor | slice) -> Moves:
    """Return the moves as some of the outputs see them."""
    return replace(moves, owner=moves.owner[:, outputs], direct=False)


def owned(moves: Moves, chosen: Tensor | slice, values: Tensor) -> Tensor:
    """Return `values` (n,) of the coordinate that owns each entry of the chosen moves: (C, 1) or (C, m).

    Where nobody does, that of another of the same move, which goes as far as any: a change is none of an owner's.
    """
    if moves.kind is Kind.SINGLE:
        return values[chosen].unsqueeze(1)
    if moves.direct:
        return values.unsqueeze(0)
    return _looked_up(values, somebody(moves, chosen))


def by_owner(moves: Moves, values: Tensor) -> Tensor:
    """Add up the values of all entries (M, m) that a coordinate owns; (n,)."""
    if moves.kind is Kind.SINGLE:
        return values.sum(dim=1)
    if moves.direct:
        return values[0]
    found = torch.zeros(len(moves.colour), dtype=values.dtype, device=values.device)
    return found.scatter_add_(0, somebody(moves, slice(None)).reshape(-1), _of_owners(moves, values).reshape(-1))


def largest_by_owner(moves: Moves, sizes: Tensor) -> Tensor:
    """Return the largest of the sizes (M, m), none of them negative, of the entries that a coordinate owns; (n,)."""
    if moves.kind is Kind.SINGLE:
        return sizes.amax(dim=1)
    if moves.direct:
        return sizes[0]
    found = torch.zeros(len(moves.colour), dtype=sizes.dtype, device=sizes.device)
    return found.scatter_reduce_(0, somebody(moves, slice(None)).reshape(-1), sizes.reshape(-1), "amax")


def to_owners(moves: Moves, values: Tensor) -> Tensor:
    """Return for every entry the value (n,) of the coordinate that owns it, 0 where none does; (M, m)."""
    if moves.kind is Kind.SINGLE:
        return values.unsqueeze(1).expand_as(moves.owner)
    if moves.direct:
        return values.unsqueeze(0)
    return _of_owners(moves, _looked_up(values, somebody(moves, slice(None))))


def somebody(moves: Moves, chosen: Tensor | slice) -> Tensor:
    """Return the owners of the chosen moves' entries, with a coordinate of the same move in place of nobody; (C, m)."""
    owner = moves.owner[chosen]
    if moves.full:
        return owner
    every = torch.arange(len(moves.colour), device=owner.device)
    first = every.new_full((moves.count,), len(every) - 1).scatter_reduce_(0, moves.colour, every, "amin")
    return torch.where(owner >= 0, owner, first[chosen].unsqueeze(1))


def _of_owners(moves: Moves, values: Tensor) -> Tensor:
    """Return the values of all entries (M, m), zero where nobody owns them."""
    return values if moves.full else torch.where(moves.owner >= 0, values, 0.0)


def _looked_up(values: Tensor, places: Tensor) -> Tensor:
    return values.index_select(0, places.reshape(-1)).view(places.shape)  # a quarter of the time of values[places]


def members(moves: Moves, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the coordinates to displace for the chosen moves and, of each, the position of its move in `chosen`.

    Both are (k,), the coordinates in order. Those that own none of isolated outputs stay where they are.
    """
    if moves.kind is Kind.SINGLE:
        return chosen, torch.arange(len(chosen), device=chosen.device)
    if moves.direct:
        return torch.arange(len(moves.colour), device=chosen.device), torch.zeros_like(moves.colour)
    if len(chosen) == moves.count and not moves.isolated:
        return torch.arange(len(moves.colour), device=chosen.device), moves.colour
    position = torch.full((moves.count,), -1, dtype=torch.long, device=chosen.device)
    position[chosen] = torch.arange(len(chosen), device=chosen.device)
    if owns_all(moves, chosen):
        inside = torch.unique(moves.owner[chosen])
        return inside, position[moves.colour[inside]]
    place = position[moves.colour]
    inside = (place >= 0).nonzero().squeeze(1)
    return inside, place[inside]


def owns_all(moves: Moves, chosen: Tensor) -> bool:
    """Tell whether nobody else need be displaced: a change of any output is due to someone in each chosen move."""
    return moves.isolated and not any_set(moves.owner[chosen] < 0)
