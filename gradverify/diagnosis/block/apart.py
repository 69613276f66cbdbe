"""Rows and columns of a block that have nothing to do with each other, as those of a batch."""

from __future__ import annotations

from collections.abc import Sequence
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
            return [
                Part(rows=own, columns=others)
                for own, others in zip(_by_label(lowest, none), _by_label(columns, none), strict=True)
            ]
        rows = torch.minimum(lowest, rows)
    return [Part(rows=live.any(dim=1).nonzero().squeeze(1), columns=live.any(dim=0).nonzero().squeeze(1))]


def _by_label(labels: Tensor, none: int) -> Sequence[Tensor]:
    """Return the places of each label in `labels` (n,), the smallest label first; `none` is no label."""
    _, counts = torch.unique(labels, return_counts=True)
    places = torch.split(labels.argsort(stable=True), counts.tolist())
    return places[:-1] if bool((labels == none).any()) else places
