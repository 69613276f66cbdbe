"""Tolerances of entries, and the magnitudes that they are relative to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.estimate.column_groups import ColumnGroups, largest_by_column, value_of_column
from gradverify.core.tuning import RESULT_UNITS

RESOLVED = 1e-3  # of its scale: an entry with a larger error bar, times BAR_FACTOR, is not judged
NEGLIGIBLE = 1e-6  # of |f|/|x|: smaller derivatives are negligible
ROUNDING = 100 * torch.finfo(torch.float64).eps  # of the row and column: error of sums in backward
ZERO = 1e-10  # of the row and column: error of sums in backward where the derivative is zero
_RTOL = {torch.float64: 1e-7, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 1e-1}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTolerance:
    """Allowed errors per entry, not counting the error bars."""

    rtol: float
    floor: float  # the part of atol that is the same for all entries
    row_column_size: Tensor  # (C, m) the smaller of the largest claims in the entry's row and in its column
    scale: Tensor  # (C, m) magnitude that an error bar is compared with, if larger than the entry
    largest: Tensor  # (m,) largest claim for each output tensor; error bars at an edge are compared with it
    order: int  # of the derivative: 2 where the forward is a vjp
    backward_eps: float = 0.0  # eps of backward's dtype if it is coarser than the sampled forward's, else 0

    @property
    def atol(self) -> Tensor:
        """Absolute tolerance: rounding in backward plus `floor`; (C, m)."""
        return (backward_rounding(self.backward_eps) * self.row_column_size).add_(self.floor)

    @property
    def zero(self) -> Tensor:
        """Absolute tolerance where the derivative is zero: a small part of the row and column; (C, m)."""
        return max(ZERO, RESULT_UNITS * self.backward_eps) * self.row_column_size


def backward_rounding(coarse: float) -> float:
    """Return the rounding error of backward relative to the row and column; `coarse` as in `EntryTolerance`."""
    return max(ROUNDING, RESULT_UNITS * coarse)


def relative_tolerance(tolerances: Tolerances, dtypes: Iterable[torch.dtype]) -> float:
    """Return the relative tolerance: the user's, or the largest default of the dtypes."""
    if tolerances.rtol is not None:
        return tolerances.rtol
    real = [torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype for dtype in dtypes]
    return max((_RTOL[dtype] for dtype in real if dtype in _RTOL), default=_RTOL[torch.float64])


def row_column_size(column_groups: ColumnGroups, size: Tensor) -> Tensor:
    """Return the smaller of the row's and the column's largest magnitude, (M, m); `size` (M, m) is |claimed|."""
    if not size.numel():
        return size
    return torch.minimum(
        size.amax(dim=0, keepdim=True),
        value_of_column(column_groups, slice(None), largest_by_column(column_groups, size)),
    )


def resolution_scale(column_groups: ColumnGroups, size: Tensor, value: Tensor, length: Tensor) -> Tensor:
    """Return the magnitude below which a derivative is negligible, (M, m).

    `size` (M, m) is |claimed|, `value` (m,) are the outputs' magnitudes and `length` (n,) the inputs' length scales. An
    entry is negligible if it changes the output little, compared with the other inputs and with the output itself.
    """
    if not size.numel():
        return size
    lengths = value_of_column(column_groups, slice(None), length)
    return torch.maximum((size * lengths).amax(dim=0), NEGLIGIBLE * value).unsqueeze(0) / lengths


def threshold_of(allowance: EntryTolerance) -> float:
    """Return the largest error bar of an entry that is judged, relative to its scale."""
    return max(4 * allowance.rtol, RESOLVED)  # in low precision, the tolerance itself is large
