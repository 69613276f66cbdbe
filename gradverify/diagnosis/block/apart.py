"""Rows and columns of a block that have nothing to do with each other, as those of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDS = 8  # of passing labels on; what is not settled then is taken for one whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows and columns that are zero everywhere outside each other."""

    rows: Tensor  # (k,)
    columns: Tensor  # (l,)

    @property
    def place(self) -> tuple[Tensor, Tensor]:
        """Where its entries are."""
        return self.rows.unsqueeze(1), self.columns.unsqueeze(0)


def parts(live: Tensor) -> list[Part]:
    """Return the parts that the entries (m, n) bool fall into, where none goes over into another's."""
    rows, none = torch.arange(len(live), device=live.device), len(live)
    for _ in range(_ROUNDS):
        columns = torch.where(live, rows.unsqueeze(1), none).amin(dim=0)
        lowest = torch.where(live, columns.unsqueeze(0), none).amin(dim=1)
        if torch.equal(lowest, rows.masked_fill(~live.any(dim=1), none)):
            return [_part(lowest, columns, label) for label in torch.unique(lowest[lowest < none]).tolist()]
        rows = torch.minimum(lowest, rows)
    return [Part(rows=live.any(dim=1).nonzero().squeeze(1), columns=live.any(dim=0).nonzero().squeeze(1))]


def _part(rows: Tensor, columns: Tensor, label: int) -> Part:
    return Part(rows=(rows == label).nonzero().squeeze(1), columns=(columns == label).nonzero().squeeze(1))
