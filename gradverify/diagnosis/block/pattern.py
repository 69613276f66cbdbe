"""A pattern of an error, and what it is tested on: all entries of a wrong block, or random sums over them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Claimed entry (o, i) is factor * by_row[o] * by_column[i] * the derivative of rows[o] by columns[i]."""

    rows: Tensor | None = None  # (p,) output coordinates; None for the block's own
    columns: Tensor | None = None  # (q,) input coordinates; None for the block's own
    by_row: Tensor | None = None  # (p,) factors; None for ones
    by_column: Tensor | None = None  # (q,) factors; None for ones
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A typical ratio claimed / numeric."""

    value: float
    accuracy: float  # relative
