"""What shared moves have found, kept whole to be verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.function.flags import any_set
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.moves import Moves, to_owners
from gradverify.core.numeric.samples import BAR_FACTOR, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """All entries of some shared moves, each (M, m)."""

    moves: Moves
    numeric: Tensor
    bar: Tensor
    code: Tensor  # see Code


def gathered(moves: Moves, parts: Sequence[Judged]) -> Added:
    """Put judged chunks of all moves, in order, together."""
    if len(parts) == 1:
        (only,) = parts
        return Added(moves=moves, numeric=only.numeric, bar=only.bar, code=only.code)
    return Added(
        moves=moves,
        numeric=torch.cat([part.numeric for part in parts]),
        bar=torch.cat([part.bar for part in parts]),
        code=torch.cat([part.code for part in parts]),
    )


def along(added: Added, direction: Tensor) -> Estimate:
    """Return J·direction as the entries give it, with the sum of their bars; (m,)."""
    by = to_owners(added.moves, direction)
    value, bar = added.numeric * by, added.bar * by.abs()
    value, bar = value.nan_to_num_(0.0), bar.nan_to_num_(torch.inf)
    if len(value) == 1:
        return Estimate(value=value[0], bar=bar[0])
    return Estimate(value=value.sum(dim=0), bar=bar.sum(dim=0))


def smooth(added: Added) -> Tensor:
    """Tell for which outputs every entry is known and smooth, so that they can be added up; (m,)."""
    return ((added.code == Code.MATCH) | (added.code == Code.MISMATCH)).all(dim=0)


def strays(added: Added) -> bool:
    """Tell whether an output moved that no coordinate of the move should reach."""
    if added.moves.direct:
        return False
    lost = (added.moves.owner < 0) & (added.numeric.abs() > BAR_FACTOR * added.bar)
    return any_set(lost)


def accused(added: Added, most: int) -> Tensor:
    """Return coordinates with entries that are mismatches, at most so many, spread over all of them; (k,)."""
    hit = (added.code == Code.MISMATCH) & (added.moves.owner >= 0)
    every: Tensor = torch.unique(added.moves.owner[hit])
    return every[:: max(1, len(every) // most)][:most]


def columns(added: Added, coordinates: Tensor) -> Estimate:
    """Return the columns of the Jacobian that belong to these coordinates, each (k, m)."""
    rows = added.moves.colour[coordinates]
    own = added.moves.owner[rows] == coordinates.unsqueeze(1)
    return Estimate(value=torch.where(own, added.numeric[rows], 0.0), bar=torch.where(own, added.bar[rows], 0.0))
