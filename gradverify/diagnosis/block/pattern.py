"""A pattern of an error, and what it is tested on: all entries of a wrong block, or random sums over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.evidence import WrongBlock


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


class ComparedBlock(Protocol):
    """Claimed and numeric derivatives of a wrong block, as far as they are known."""

    @property
    def block(self) -> WrongBlock:
        """The block, with the problem that it belongs to."""
        ...

    @property
    def nonzero(self) -> Tensor | None:
        """Mask (m, n) of the entries whose derivative is not zero; None if single entries are not known."""
        ...

    @property
    def claims_nothing(self) -> bool:
        """True if every claim is zero."""
        ...

    def ratio(self) -> Ratio | None:
        """Return the ratio that all claims may have to the derivatives; None if there is none."""
        ...

    def agrees(self, pattern: Pattern) -> float | None:
        """Return the share of the squared error that the pattern explains, from 0 to 1; None if it does not hold."""
        ...

    def over(self, of: Block, wrt: Block) -> ComparedBlock | None:
        """Return the same of other tensors of the problem; None if they cannot be compared, or nothing is wrong."""
        ...
