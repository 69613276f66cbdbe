"""The entries of a wrong block prepared for pattern matching, and the measure of how well a pattern fits them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.backward.vjps import row_cotangent
from gradverify.core.decide.compare import relative_tolerance
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.coordinates import Block, total
from gradverify.diagnosis.block.elsewhere import permuted_block
from gradverify.diagnosis.naming.constants import cotangents_in_words
from gradverify.diagnosis.naming.variables import Axis, Variable, tensors_along
from gradverify.diagnosis.naming.wording import diagnosed
from gradverify.diagnosis.tuning import ALMOST_ALL
from gradverify.evidence import Diagnosis, Evidence, evidence_of

MIN_SHARE = 0.99  # share of the squared error that a pattern has to explain
_SPOILT = 0.01  # share of the affected entries that may be right, nonzero and contradicted by the pattern
_RESEMBLES = 0.8  # share of the sampled wrong entries that a pattern has to reproduce
CLOSE = 1e-3  # of an error, and of the entry itself: largest residual of a pattern beyond the slack
CAP = 0.1  # of an error: largest part attributed to measurement and rounding
ROUNDINGS = 10  # times eps of the dtype that backward computes in, and the claimed entry or the size of a sum
_SAMPLES = 512  # entries in a sample, all of up to twice as many: a pattern has to fit them before all are compared
_ONE_IN = 2  # at least one nonzero entry in so many has to be wrong for one factor on all
_SUMS = 1e-13  # of the largest entry in the row, or column: rounding that sums in backward leave in place of a zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Claimed entry (o, i) is factor * by_row[o] * by_column[i] * the derivative of rows[o] by columns[i].

    A `constant` is added to each gradient, whatever the cotangent is.
    """

    rows: Tensor | None = None  # (p,) output coordinates; None for the block's own
    columns: Tensor | None = None  # (q,) input coordinates; None for the block's own
    by_row: Tensor | None = None  # (p,) factors; None for ones
    by_column: Tensor | None = None  # (q,) factors; None for ones
    factor: float = 1.0
    constant: Tensor | None = None  # (q,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A typical ratio claimed / numeric."""

    value: float
    accuracy: float  # relative


@dataclass(frozen=True, kw_only=True)
class BlockEntries:
    """Claimed and numeric entries of a block, with masks and tolerances; entries left out are 0 and not wrong."""

    block: Evidence
    claimed: Tensor  # (m, n)
    numeric: Tensor  # (m, n)
    wrong: Tensor  # (m, n) bool
    zero: Tensor  # (m, n) bool: `numeric` is zero within its error bar, or the entry is left out
    left_out: Tensor  # (m, n) bool: not finite, or neither wrong nor within the tolerance
    rounded: Tensor  # (m, n) error bars plus rounding
    allowed: Tensor  # (m, n) error bars, rounding and the relative tolerance
    slack: Tensor  # (m, n) `rounded` for wrong entries, `allowed` for right ones
    sampled_wrong: tuple[Tensor, Tensor]  # rows and columns of a sample of the wrong entries
    sampled_right: tuple[Tensor, Tensor]  # the same of the right nonzero entries
    largest_error: float  # largest error of a wrong entry; squares are taken relative to it to avoid underflow
    squared_error: float  # sum over the wrong entries of (error / largest)²
    permuted: Callable[[], Evidence | None]  # the block at the permuted input; computed at the first call
    tensors_along: Callable[[Axis], tuple[Variable, ...]]  # those that broadcast along an axis; computed at first

    @property
    def nonzero(self) -> Tensor:
        """Mask (m, n) of the entries whose derivative is not zero."""
        return ~self.zero

    @cached_property
    def is_elementwise(self) -> bool:
        """True if both shapes are equal and claimed and numeric entries are zero off the diagonal."""
        if self.block.of.shape != self.block.wrt.shape:
            return False
        return all(is_diagonal(nonzero) for nonzero in (self.claimed != 0, self.nonzero))

    def ratio(self) -> Ratio | None:
        """Return the median of claimed / numeric over the wrong entries; None if most nonzero entries are right."""
        if _ONE_IN * int(self.wrong.sum()) < int(self.nonzero.sum()):
            return None  # a factor that the tolerance hides in most entries is not confirmed there
        return self.ratio_in(self.wrong)

    @cached_property
    def may_be_rearranged(self) -> bool:
        """True if most sampled wrong claims equal some numeric entry or zero, as they do in every arrangement."""
        claimed = self.claimed[self.sampled_wrong]
        values = torch.cat([self.numeric.flatten(), claimed.new_zeros(1)]).sort().values
        above = torch.searchsorted(values, claimed).clamp(max=len(values) - 1)
        near = torch.stack([values[above], values[(above - 1).clamp(min=0)]])
        nearest = near.gather(0, (near - claimed).abs().argmin(0, keepdim=True))
        return self._fits_sample(nearest.squeeze(0))

    def agrees(self, pattern: Pattern) -> float | None:
        """Return the share of the squared error that the pattern explains; None if it does not hold.

        A factor on all entries is contradicted by any right one.
        """
        rows, columns = (torch.arange(size, device=self.block.device) for size in self.numeric.shape)
        scale = abs(pattern.factor)
        if not self._fits_sample(self._predicted(pattern, *self.sampled_wrong), scale):
            return None
        predicted = self._predicted(pattern, rows.unsqueeze(1), columns)
        share = self.explained_share(predicted, scale)
        contradicted = share is not None and pattern.factor != 1.0 and self.contradicts_right(predicted, scale)
        return None if contradicted else share

    def _predicted(self, pattern: Pattern, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the claims that a pattern predicts at rows and columns of the block, whose indices are broadcast."""
        of, wrt = self.block.of, self.block.wrt
        outputs = of.start + of.step * rows if pattern.rows is None else pattern.rows[rows]
        inputs = wrt.start + wrt.step * columns if pattern.columns is None else pattern.columns[columns]
        predicted = pattern.factor * self.block.jacobians.numeric[outputs, inputs].nan_to_num(0.0, 0.0, 0.0)
        predicted = predicted if pattern.by_row is None else predicted * pattern.by_row[rows]
        predicted = predicted if pattern.by_column is None else predicted * pattern.by_column[columns]
        return predicted if pattern.constant is None else predicted + self.in_rows(pattern.constant)[columns]

    def explained_share(self, predicted: Tensor, scale: float = 1.0) -> float | None:
        """Return the share of the squared error that `predicted` (m, n) explains, None if it is rejected.

        `scale` is the factor by which the prediction enlarges numeric values, and so their error bars. Affected entries
        are the wrong ones and those that differ from the prediction. A prediction is rejected if the share is below
        MIN_SHARE, if it misses more than a tenth of the affected entries (one large entry is no evidence for the
        others), or if more than a hundredth of them are right nonzero entries.
        """
        if not self._fits_sample(predicted[self.sampled_wrong], scale):
            return None
        wrong, error = self.wrong, (self.claimed - self.numeric).abs()
        slack = max(scale, 1.0) * self.slack
        slack = torch.where(wrong, torch.minimum(slack, CAP * error), slack)
        residual = ((self.claimed - predicted).abs() - slack).clamp_(min=0.0).masked_fill_(self.left_out, 0.0)
        share = 1.0 - float(torch.linalg.vector_norm(residual / self.largest_error)) ** 2 / self.squared_error
        reproduced = int((wrong & (residual <= _permitted(error, self.claimed, predicted))).sum())
        affected = int((wrong | (residual > 0)).sum())
        spoilt = int(((residual > 0) & ~(wrong | self.zero)).sum())
        fits = reproduced >= ALMOST_ALL * affected and spoilt <= _SPOILT * affected
        return share if fits and share >= MIN_SHARE else None

    def explained(self, predicted: Tensor, cause: str, text: str, scale: float = 1.0) -> Diagnosis | None:
        """Return the diagnosis with this text if `predicted` explains the error, else None; see `explained_share`."""
        return diagnosed(cause, text, self.explained_share(predicted, scale))

    def share_inside(self, inside: Tensor, factor: float | None = None) -> float | None:
        """Return the share of the error explained if the entries in a mask alone are wrong; see `explained_share`.

        The mask broadcasts to (m, n). They are wrong by a factor, or in any way if it is None.
        """
        wrong, scale = (self.claimed, 1.0) if factor is None else (factor * self.numeric, abs(factor))
        return self.explained_share(torch.where(inside, wrong, self.numeric), scale)

    def _fits_sample(self, predicted: Tensor, scale: float = 1.0) -> bool:
        """True if `predicted` (k,) reproduces most of the k sampled wrong entries."""
        at = self.sampled_wrong
        claimed, numeric, slack = self.claimed[at], self.numeric[at], self.slack[at]
        near = _reproduces(predicted, claimed, numeric, max(scale, 1.0) * slack)
        return int(near.sum()) >= _RESEMBLES * len(claimed)

    def contradicts_right(self, predicted: Tensor, scale: float = 1.0) -> bool:
        """True if `predicted` (m, n) differs from any right nonzero entry; `scale` as in `explained_share`."""
        off = (self.claimed - predicted).abs() > max(scale, 1.0) * self.slack
        return bool((off & ~(self.wrong | self.zero)).any())

    def ratio_in(self, inside: Tensor) -> Ratio | None:
        """Return a typical ratio over the sampled wrong entries in a mask broadcast to (m, n); None if all are zero."""
        at = self.sampled_wrong
        chosen = (inside & self.nonzero)[at]
        rows, columns = (indices[chosen] for indices in at)
        return typical_ratio(*(each[rows, columns] for each in (self.claimed, self.numeric, self.slack)))

    def multiple_of_cotangent(self, coordinates: Tensor) -> str | None:
        """Return "cotangent", or "3 × cotangent", if backward returns one multiple of it at `coordinates` (n,) bool.

        Returns None if not, or if the block is neither elementwise nor of a single output.
        """
        if total(self.block.of.shape) > 1 and not self.is_elementwise:
            return None
        multiples = self.claimed[0] if total(self.block.of.shape) == 1 else self.claimed.diagonal()
        return cotangents_in_words(multiples[coordinates])

    def shows_constant(self, constant: Tensor) -> bool:
        """True if `constant` (n,), added to every gradient, is a visible part of the error of a wrong entry."""
        error = (self.claimed - self.numeric).abs()
        return bool((self.in_rows(constant).abs() > CLOSE * error)[self.wrong].any())

    def in_rows(self, constant: Tensor) -> Tensor:
        """Return what a constant in the gradient adds to the claimed rows, which are computed one by one."""
        return constant / row_cotangent(self.block.backward)

    def over(self, of: Block, wrt: Block) -> BlockEntries | None:
        """Return the entries of other tensors; None if none is wrong, or if a wrong one is not finite."""
        return entries_of(evidence_of(self.block.jacobians, of, wrt))


def entries_of(evidence: Evidence) -> BlockEntries | None:
    """Return the block's entries prepared for pattern matching; None if none is wrong, or a wrong one is not finite."""
    claimed, numeric, bar, wrong = evidence.claimed, evidence.numeric, evidence.bar, evidence.wrong
    finite = torch.isfinite(claimed + numeric + bar)
    if not bool(wrong.any()) or bool((wrong & ~finite).any()):
        return None
    claimed, numeric, bar = (matrix.masked_fill(~finite, 0.0) for matrix in (claimed, numeric, bar))
    dtypes = {primal.tensor.dtype for primal in evidence.backward.problem.primals}
    error, bars = (claimed - numeric).abs(), BAR_FACTOR * bar
    rounded = bars + ROUNDINGS * evidence.jacobians.eps * claimed.abs() + _sum_rounding(claimed)
    allowed = rounded + relative_tolerance(Tolerances(), dtypes) * torch.maximum(claimed.abs(), numeric.abs())
    left_out = ~finite | (~wrong & (error > allowed))
    zero = left_out | (numeric.abs() <= bars + _sum_rounding(numeric))
    claimed, numeric = claimed.masked_fill(left_out, 0.0), numeric.masked_fill(left_out, 0.0)
    largest = float(error[wrong].max())
    return BlockEntries(
        block=evidence,
        claimed=claimed,
        numeric=numeric,
        wrong=wrong,
        zero=zero,
        left_out=left_out,
        rounded=rounded,
        allowed=allowed,
        slack=torch.where(wrong, rounded, allowed),
        sampled_wrong=_sample(wrong),
        sampled_right=_sample(~(wrong | zero)),
        largest_error=largest,
        squared_error=float(torch.linalg.vector_norm(error[wrong] / largest)) ** 2,
        permuted=cache(partial(permuted_block, evidence)),
        tensors_along=cache(lambda axis: tuple(tensors_along(evidence, axis))),
    )


def is_diagonal(nonzero: Tensor) -> bool:
    """True if the mask (k, k) is False off its diagonal."""
    return int(nonzero.sum()) == int(nonzero.diagonal().sum())


def typical_ratio(claimed: Tensor, numeric: Tensor, bar: Tensor) -> Ratio | None:
    """Return the median of claimed / numeric over the half with the smallest relative error bars.

    All have one shape. Returns None if no entry is finite and nonzero.
    """
    known = torch.isfinite(bar) & (numeric != 0) & torch.isfinite(claimed)
    if not bool(known.any()):
        return None
    ratio, accuracy = claimed[known] / numeric[known], bar[known] / numeric[known].abs()
    median = accuracy.median()
    return Ratio(value=float(ratio[accuracy <= median].median()), accuracy=float(median))


def are_multiples(claimed: Tensor, numeric: Tensor, slack: Tensor, factor: float) -> bool:
    """True if all of some wrong claims are `factor` times the numeric values; all have one shape."""
    return bool(_reproduces(factor * numeric, claimed, numeric, max(abs(factor), 1.0) * slack).all())


def _reproduces(predicted: Tensor, claimed: Tensor, numeric: Tensor, slack: Tensor) -> Tensor:
    """True where `predicted` differs from a wrong claim by little beyond the slack, which is capped by the error."""
    error = (claimed - numeric).abs()
    slack = torch.minimum(slack, CAP * error)
    return (claimed - predicted).abs() <= slack + _permitted(error, claimed, predicted)


def _permitted(error: Tensor, claimed: Tensor, predicted: Tensor) -> Tensor:
    """Return the permitted residual of each entry, beyond the slack: a small part of the error and of the entry.

    The error alone is not enough: if the claim is almost zero, the error is the whole numeric entry, and every small
    prediction would fit.
    """
    return CLOSE * torch.minimum(error, torch.maximum(claimed.abs(), predicted.abs()))


def _sum_rounding(matrix: Tensor) -> Tensor:
    """Return the rounding that sums in backward leave in each entry (m, n), from the largest in its row and column."""
    rows, columns = (torch.linalg.vector_norm(matrix, torch.inf, dim=dim, keepdim=True) for dim in (1, 0))
    return _SUMS * torch.minimum(rows, columns)


def _sample(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns of entries of the mask: all, or _SAMPLES random ones, since errors may be periodic."""
    rows, columns = mask.nonzero(as_tuple=True)
    if len(rows) <= 2 * _SAMPLES:
        return rows, columns
    chosen = torch.randint(len(rows), (_SAMPLES,), generator=torch.Generator().manual_seed(0)).sort().values
    return rows[chosen.to(rows.device)], columns[chosen.to(rows.device)]
