"""What an error may be of each entry: the tolerances, and the sizes they are held against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.estimate.column_groups import ColumnGroups, largest_by_column, owned

_RESOLVING = 1e-3  # an entry is judged when its bar, times the factor, is below this part of its scale
NEGLIGIBLE = 1e-6  # derivatives below this part of |f|/|x| are of no consequence
ROUNDING = 100 * torch.finfo(torch.float64).eps  # what sums in backward may leave, beside the row and the column
ZERO = 1e-10  # what they may leave in place of a zero
_COARSELY = 4.0  # and in half precision, units of its rounding in either case
_RTOL = {torch.float64: 1e-7, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 1e-1}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTolerance:
    """What the tolerances leave per entry, beside the error bars."""

    rtol: float
    floor: float  # the part of atol that is the same for all entries
    beside: Tensor  # (C, m) the smaller of the largest claims in the entry's row and in its column
    scale: Tensor  # (C, m) what "resolved" is measured against, beside the entry's own size
    largest: Tensor  # (m,) the largest claimed entry of each output tensor, which an edge is resolved against
    order: int  # of the derivative: 2 where the forward is a vjp
    coarse: float = 0.0  # eps of backward's own dtype, where it is coarser than that of the forward sampled

    @property
    def atol(self) -> Tensor:
        """What rounding in backward may leave, and what is allowed besides; (C, m)."""
        return (share_of_rounding(self.coarse) * self.beside).add_(self.floor)

    @property
    def zero(self) -> Tensor:
        """What may stand where the derivative is zero: next to nothing beside its row and its column; (C, m)."""
        return max(ZERO, _COARSELY * self.coarse) * self.beside


def share_of_rounding(coarse: float) -> float:
    """Return what rounding in backward may leave, beside the row and the column; `coarse` as in `Allowance`."""
    return max(ROUNDING, _COARSELY * coarse)


def relative_tolerance(tolerances: Tolerances, dtypes: Iterable[torch.dtype]) -> float:
    """Return the relative tolerance: the user's, or the coarsest default of the dtypes at hand."""
    if tolerances.rtol is not None:
        return tolerances.rtol
    real = [torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype for dtype in dtypes]
    return max((_RTOL[dtype] for dtype in real if dtype in _RTOL), default=_RTOL[torch.float64])


def entry_scale(column_groups: ColumnGroups, size: Tensor) -> Tensor:
    """Return per entry the smaller of the largest in its row and in its column; `size` is that of claims, (M, m)."""
    if not size.numel():
        return size
    return torch.minimum(
        size.amax(dim=0, keepdim=True), owned(column_groups, slice(None), largest_by_column(column_groups, size))
    )


def resolution_scale(column_groups: ColumnGroups, size: Tensor, value: Tensor, length: Tensor) -> Tensor:
    """Return per entry the size below which a derivative is of no consequence; (M, m).

    `size` is that of the claims, (M, m), `value` (m,) the outputs' magnitudes and `length` (n,) the inputs' scales. An
    entry matters as far as it moves the output beside the output's other inputs, and beside the output's own size.
    """
    if not size.numel():
        return size
    lengths = owned(column_groups, slice(None), length)
    return torch.maximum((size * lengths).amax(dim=0), NEGLIGIBLE * value).unsqueeze(0) / lengths


def threshold_of(allowance: EntryTolerance) -> float:
    """Return the part of its scale that a bar may be of an entry that is judged."""
    return max(4 * allowance.rtol, _RESOLVING)  # in low precision, what is allowed itself is a good part of the entry
