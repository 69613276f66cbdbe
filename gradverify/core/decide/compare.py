"""The claim of every entry compared with its numeric derivative: tolerances, and criteria for judging it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.decide.verdict import Code, Judged, Reason, all_match, decide
from gradverify.core.estimate.column_groups import ColumnGroups, reduced_by_column, value_of_column
from gradverify.core.estimate.nonsmooth import LadderResult
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.magnitudes import UNDERFLOW, any_set
from gradverify.core.tuning import ALIKE, LAST_DIGITS, RESULT_UNITS

RESOLVED = 1e-3  # of its scale: an entry with a larger error bar, times BAR_FACTOR, is not judged
NEGLIGIBLE = 1e-6  # of |f|/|x|: smaller derivatives are negligible
ZERO = 1e-10  # of the row and column: error of sums in backward where the derivative is zero
_RTOL = {torch.float64: 1e-7, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 1e-1}
DOUBT = 7.5e-7  # of the entry: ten error bars above this, added to the tolerance, may hide an error of 1e-6
_INSIGNIFICANT = 1e-8  # of the largest in its row or column: smaller entries count as zero
SIGNIFICANT = 1e-4  # of the largest in its row or column: larger entries are significant
MARGINAL = 1e-2  # of the largest in its row or column: a larger number matters, however small the entry is


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTolerance:
    """Allowed errors per entry, not counting the error bars."""

    rtol: float
    floor: float  # the part of atol that is the same for all entries
    row_column_size: Tensor  # (C, m) smaller of the largest claims in its row and in its column: see `row_column_size`
    scale: Tensor  # (C, m) magnitude that an error bar is compared with, if larger than the entry
    largest: Tensor  # (m,) largest claim for each output tensor; error bars at an edge are compared with it
    backward_eps: float = 0.0  # eps of backward's dtype if it is coarser than the sampled forward's, else 0
    largest_number: float = torch.inf  # of that dtype: backward has infinity for what is beyond it

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
    return max(LAST_DIGITS, RESULT_UNITS * coarse)


def relative_tolerance(tolerances: Tolerances, dtypes: Iterable[torch.dtype]) -> float:
    """Return the relative tolerance: the user's, or the largest default of the dtypes."""
    if tolerances.rtol is not None:
        return tolerances.rtol
    return max((_RTOL.get(dtype.to_real(), 0.0) for dtype in dtypes), default=0.0) or _RTOL[torch.float64]


def row_column_size(column_groups: ColumnGroups, size: Tensor, length: Tensor) -> Tensor:
    """Return the smaller of the row's and the column's largest magnitude, (M, m).

    `size` (M, m) is |claimed|, `length` (n,) are the length scales that the inputs' tensors share. Inputs may have
    different units, so the row's largest is also taken of the changes of the output over these lengths.
    """
    if not size.numel():
        return size
    column = value_of_column(column_groups, slice(None), reduced_by_column(column_groups, size, "amax"))
    row = size.amax(dim=0, keepdim=True).minimum(largest_change(column_groups, size, length, at_least=0.0))
    return torch.minimum(row, column)


def largest_change(column_groups: ColumnGroups, size: Tensor, length: Tensor, at_least: Tensor | float) -> Tensor:
    """Return the derivatives that change the output over `length` as much as the largest of the row does, (M, m)."""
    if not size.numel():
        return size
    lengths = value_of_column(column_groups, slice(None), length)
    return (size * lengths).amax(dim=0).clamp(min=at_least).unsqueeze(0) / lengths


def threshold_of(allowance: EntryTolerance) -> float:
    """Return the largest error bar of an entry that is judged, relative to its scale."""
    return max(4 * allowance.rtol, RESOLVED)  # in low precision, the tolerance itself is large


def judge_smooth(claimed: Tensor, estimate: Estimate, allowance: EntryTolerance, zero: Tensor) -> Judged:
    """Judge entries (C, m) by an estimate of a smooth derivative.

    `zero` (C, m) is the absolute tolerance for entries whose estimate is zero within its error bar.
    """
    own, size = claimed.abs(), estimate.value.abs()
    larger = torch.fmax(own, size).nan_to_num_(0.0, 0.0, 0.0)
    allowed = allowance.atol.add_(larger, alpha=allowance.rtol).add_(estimate.bar, alpha=BAR_FACTOR)
    allowed = torch.where(size <= estimate.bar, torch.maximum(allowed, zero), allowed)
    error = _distance(claimed, estimate.value, allowance.largest_number)
    resolved = is_resolved(estimate.bar, larger, allowance)
    open_ = (error <= allowed).logical_and_(resolved).logical_not_()
    judged = all_match(estimate.value, estimate.bar, error, allowed)
    if not any_set(open_):
        return judged
    # A claim of inf or nan is only wrong if the derivative is known to be finite.
    certain = resolved.logical_or_(own < torch.inf).logical_and_(estimate.bar < torch.inf)
    return decide(judged, [(open_, Reason.WIDE_BAR), (certain.logical_and_(error > allowed), Reason.DIFFERS)])


def is_resolved(bar: Tensor, size: Tensor, allowance: EntryTolerance) -> Tensor:
    """Mask of error bars that are small beside the entry's size, or beside what an entry of any consequence has."""
    wide = BAR_FACTOR * bar > torch.maximum(size, allowance.scale).mul_(threshold_of(allowance))
    return wide.logical_not_().logical_or_(bar <= UNDERFLOW)


def judge_local(claimed: Tensor, local: LadderResult, allowance: EntryTolerance) -> Judged:
    """Judge entries (C, m) by what the ladder of steps shows: kinks by the interval of one-sided derivatives."""
    # The scale includes the steepest slope close by, even along another input: a wrong branch would show by that.
    scale = torch.maximum(allowance.scale, local.steepest.amax(dim=0, keepdim=True))
    if allowance.rtol > DOUBT:  # in a row or column of zeros, low precision hides what is small elsewhere
        silent = (allowance.row_column_size == 0) & (local.estimate.value.abs() <= local.estimate.bar)
        scale = torch.where(silent, torch.maximum(scale, allowance.largest), scale)
    allowance = replace(allowance, scale=scale)
    judged = judge_smooth(
        claimed, local.estimate, allowance, torch.maximum(allowance.zero, BAR_FACTOR * local.hidden_by_cancellation)
    )
    zero, wrong = claimed == 0, judged.code == Code.MISMATCH
    constant, stairs = local.constant & zero, local.high_stair & zero & wrong & ~local.constant
    cancels = wrong & ~constant & ~stairs & ~local.kink
    cancels &= judged.error <= ALIKE * local.rounding_jump
    bar = torch.where(cancels, judged.error, judged.bar)
    allowed = torch.where(cancels, BAR_FACTOR * bar, judged.allowed)
    outside = torch.maximum(local.low - claimed, claimed - local.high).clamp(min=0.0)
    at_edge = local.edge & (judged.error <= allowed)
    at_edge &= BAR_FACTOR * bar <= threshold_of(allowance) * allowance.largest
    # A claim of nan has no nearest subgradient: the middle of the two slopes stays.
    nearest = torch.where(local.kink & ~claimed.isnan(), claimed.clamp(local.low, local.high), judged.numeric)
    return decide(
        judged,
        [
            (constant, Reason.CONSTANT),
            (stairs, Reason.STAIRS),
            (cancels, Reason.CANCELLATION),
            (cancels & ~is_resolved(bar, claimed.abs(), allowance), Reason.CANCELLATION_HIDES),
            (local.kink, Reason.OUTSIDE_SLOPES),
            (local.kink & (outside <= allowed), Reason.BETWEEN_SLOPES),
            (at_edge, Reason.EDGE),
            (local.jump, Reason.JUMP),
            (local.undefined, Reason.NOT_FINITE),
        ],
        numeric=nearest,
        bar=bar,
        error=torch.where(local.kink, outside, judged.error),
        allowed=allowed,
        kinked=local.kink | local.jump | local.close_kink,
        bent=local.kink,
    )


def in_doubt(judged: Judged, suspicious: Tensor, own: Tensor, allowance: EntryTolerance) -> Tensor:
    """Mask of entries (C, m) to judge again: those that do not match, are suspicious, or have a wide error bar.

    The bar of a significant entry must not hide a relative error that is small but above rtol, and the bar of a
    negligible entry must not hide a number as large as others in its row or column. Where the whole row and column are
    claimed to be zero, it must not hide the size of the estimate itself. `own` (C, m) is the magnitude of the claims.
    """
    bar, doubt = BAR_FACTOR * judged.bar, (judged.code != Code.MATCH).logical_or_(suspicious)
    if not any_set(bar > _harmless_part(allowance.rtol) * own):
        return doubt
    return doubt.logical_or_(bar > _harmless_error(own, allowance, judged.numeric.abs()))


def differs_clearly(judged: Judged) -> Tensor:
    """Mask of mismatches (C, m) that are far beyond what is allowed."""
    return (judged.code == Code.MISMATCH) & (judged.error > ALIKE * judged.allowed)


def largest_resolving_bar(own: Tensor, allowance: EntryTolerance) -> Tensor:
    """Return the largest error bars (C, m) by which claims of magnitude `own` that agree are not in doubt."""
    resolved = torch.maximum(own, allowance.scale).mul_(threshold_of(allowance))
    return torch.minimum(_harmless_error(own, allowance, torch.zeros_like(own)), resolved).div_(BAR_FACTOR)


def is_significant(size: Tensor, beside: Tensor) -> Tensor:
    """Mask of entries that are significant beside the largest of their row and column, `beside`."""
    return size > SIGNIFICANT * beside


def _harmless_part(rtol: float) -> float:
    """Return the part of a significant claim that ten error bars may hide."""
    return min(RESOLVED, max(DOUBT, rtol))


def _harmless_error(own: Tensor, allowance: EntryTolerance, size: Tensor) -> Tensor:
    """Return the errors (C, m) that ten error bars may hide, for claims of magnitude `own`; see `in_doubt`.

    `size` (C, m) is the magnitude of the estimates, 0 where the output does not change.
    """
    beside = allowance.row_column_size
    neighbour = torch.where(beside > 0, beside, allowance.largest)  # the largest claim for rows or columns of zeros
    neighbour = torch.where(neighbour > 0, MARGINAL * neighbour, torch.inf)
    neighbour = torch.where((beside == 0) & (size > 0), torch.minimum(neighbour, RESOLVED * size), neighbour)
    part = torch.where(is_significant(own, beside), _harmless_part(allowance.rtol), RESOLVED)
    return torch.where(own <= _INSIGNIFICANT * beside, neighbour, part.mul_(own))


def _distance(claimed: Tensor, numeric: Tensor, largest_number: float) -> Tensor:
    """Return |claimed - numeric|; 0 for equal infinities, inf if only one of them is nan.

    Numbers beyond the largest one of backward's dtype are infinite there.
    """
    if largest_number < torch.inf:
        numeric = torch.where(claimed.isinf() & (numeric.abs() > largest_number), numeric * torch.inf, numeric)
    apart = (claimed - numeric).abs_()
    if not any_set(apart.isnan()):
        return apart
    apart = torch.where(claimed == numeric, 0.0, apart)
    only_one = torch.isnan(claimed) & torch.isfinite(numeric)
    return torch.where(only_one, torch.inf, apart)
