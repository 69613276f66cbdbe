"""Connected components of a block's sparsity pattern, for example the samples of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDS = 8  # of label propagation; if the labels still change then, the whole pattern is returned as one component


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Rows and columns whose entries outside each other are all zero."""

    rows: Tensor  # (k,)
    columns: Tensor  # (l,)

    @property
    def place(self) -> tuple[Tensor, Tensor]:
        """Index of the submatrix of these rows and columns."""
        return self.rows.unsqueeze(1), self.columns.unsqueeze(0)


def connected_components(live: Tensor) -> list[Component]:
    """Return the connected components of the sparsity pattern `live` (m, n) bool; empty rows and columns are in none.

    Every row starts with its own index as label. Rows and columns take the smallest label they are connected to until
    the labels no longer change.
    """
    rows, unlabelled = torch.arange(len(live), device=live.device), len(live)
    for _ in range(_ROUNDS):
        columns = torch.where(live, rows.unsqueeze(1), unlabelled).amin(dim=0)
        lowest = torch.where(live, columns.unsqueeze(0), unlabelled).amin(dim=1)
        if torch.equal(lowest, rows.masked_fill(~live.any(dim=1), unlabelled)):
            return [
                Component(rows=of_rows, columns=of_columns)
                for of_rows, of_columns in zip(
                    _by_label(lowest, unlabelled), _by_label(columns, unlabelled), strict=True
                )
            ]
        rows = torch.minimum(lowest, rows)
    return [Component(rows=live.any(dim=1).nonzero().squeeze(1), columns=live.any(dim=0).nonzero().squeeze(1))]


def _by_label(labels: Tensor, unlabelled: int) -> Sequence[Tensor]:
    """Return the indices of each label in `labels` (n,), in ascending order of the labels, without `unlabelled`."""
    _, counts = torch.unique(labels, return_counts=True)
    indices = torch.split(labels.argsort(stable=True), counts.tolist())
    return indices[:-1] if bool((labels == unlabelled).any()) else indices
