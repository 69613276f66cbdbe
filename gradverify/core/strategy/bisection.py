"""Bisection from a random sum that differs to the wrong entries: halve the columns first, then the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, flat_vjp, row_cotangent
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.magnitudes import TINY, all_set
from gradverify.core.strategy.random_sums import (
    RandomSums,
    SumDifference,
    best_slope,
    sum_difference,
    sum_difference_at,
    vjp_for_sums,
)
from gradverify.core.tuning import FEW


class CachedRows(dict[int, Tensor]):
    """Rows of backward's Jacobian by output coordinate, each computed once and kept."""

    def __init__(self, backward: Backward) -> None:
        self._backward = backward

    def __missing__(self, output: int) -> Tensor:
        scale, cotangent = row_cotangent(self._backward), torch.zeros_like(self._backward.known_vjp[0])
        cotangent[output] = scale
        self[output] = flat_vjp(self._backward, cotangent) / scale
        return self[output]


def single_wrong_column(directions: Sequence[Tensor], gaps: Sequence[SumDifference]) -> int | None:
    """Return the input coordinate whose column alone may explain the gaps along L directions, None if none does.

    An error e in column k changes the sum u·J·v by (u·e) v_k, so that the gaps (K, L) are the outer product of a vector
    and the k-th entries of the directions. Checksums locate a wrong entry of a matrix product in this way (Huang &
    Abraham, IEEE Trans. Comput. C-33(6), 1984). Along fewer than three directions some column always comes close.
    """
    if len(gaps) < FEW:
        return None
    entries = torch.stack(list(directions))  # (L, n)
    unit = entries / torch.linalg.vector_norm(entries, dim=0).clamp(min=TINY)
    errors = torch.stack([gap.error for gap in gaps], dim=1)
    allowed = torch.stack([gap.allowed for gap in gaps], dim=1)
    column = int((errors @ unit).square().sum(dim=0).argmax())
    along = unit[:, column]
    rest = errors - (errors @ along).unsqueeze(1) * along
    return column if all_set(rest.abs() <= allowed) else None


def wrong_columns(sums: RandomSums, direction: Tensor, whole: SumDifference, last: int) -> Iterator[int]:
    """Yield input coordinates whose column is wrong, largest error first, until `last` calls have been made in all."""
    pending = [(direction.nonzero().squeeze(1), whole)]
    while pending and sums.measured.sampled.problem.meter.calls < last:
        support, gap_of_support = pending.pop()
        if len(support) == 1:
            yield int(support)
            continue
        left, right = support[: len(support) // 2], support[len(support) // 2 :]
        left_gap = sum_difference_at(sums, zero_outside(direction, left), gap_of_support.first_step)
        if all_set(gap_of_support.error.isfinite()):
            right_gap = _rest(gap_of_support, left_gap)
        else:
            right_gap = sum_difference_at(sums, zero_outside(direction, right), gap_of_support.first_step)
        halves = [(left, left_gap), (right, right_gap)]
        if not any(part.differs for _, part in halves):  # a kink along one half only: take smaller steps
            halves = [(support, sum_difference(sums, zero_outside(direction, support))) for support, _ in halves]
        pending += [pair for pair in sorted(halves, key=lambda pair: pair[1].excess) if pair[1].differs]


def wrong_rows(sums: RandomSums, known_rows: CachedRows, column: int) -> list[int]:
    """Return a few output coordinates whose entry in this wrong column is wrong; empty if none could be found."""
    slopes = best_slope(sums.measured, sums.cotangents, zero_outside(sums.measured.lengths.step, column))
    size = slopes.value.abs().nan_to_num(0.0).masked_fill(~sums.finite, 0.0)
    largest = size.topk(min(FEW, len(size))).indices.tolist()
    wrong = [output for output in {*largest, *known_rows} if _is_wrong(sums, known_rows, slopes, output, column)]
    if wrong:
        return sorted(wrong)
    bisected = _bisected_row(sums, slopes, column)
    return [bisected] if _is_wrong(sums, known_rows, slopes, bisected, column) else []


def _is_wrong(sums: RandomSums, known_rows: CachedRows, slopes: Estimate, output: int, column: int) -> bool:
    """True if the claimed entry differs from the measured one by more than its bar and the relative tolerance."""
    claimed = known_rows[output][column] * sums.measured.lengths.step[column]
    numeric, bar = slopes.value[output], slopes.bar[output]
    allowed = BAR_FACTOR * bar + sums.rtol * torch.fmax(claimed.abs(), numeric.abs())
    agrees = claimed.isfinite() & ((claimed - numeric).abs() <= allowed)
    return bool(~agrees & torch.isfinite(bar))


def _bisected_row(sums: RandomSums, slopes: Estimate, column: int) -> int:
    """Bisect the cotangent with the largest error down to one output; costs one vjp per level."""
    value = slopes.value.nan_to_num(0.0) / sums.measured.lengths.step[column]
    errors = sums.cotangents @ value - sums.vjps[:, column]
    worst = int(errors.abs().argmax())
    cotangent, error = sums.cotangents[worst], float(errors[worst])
    support = cotangent.nonzero().squeeze(1)
    while len(support) > 1:
        left, right = support[: len(support) // 2], support[len(support) // 2 :]
        part = zero_outside(cotangent, left)
        left_error = float(part @ value - vjp_for_sums(sums.measured, part)[column])
        is_left = not math.isfinite(left_error) or abs(left_error) >= abs(error - left_error)
        support, error = (left, left_error) if is_left else (right, error - left_error)
    return int(support)


def _rest(whole: SumDifference, part: SumDifference) -> SumDifference:
    """Return the gap along the rest of a direction, given the gap along a part of it."""
    return replace(
        whole,
        error=whole.error - part.error,
        bar=whole.bar + part.bar,
        allowed=whole.allowed + part.allowed,
        output_rounding=whole.output_rounding + part.output_rounding,
        size=whole.size + part.size,
        slack=whole.slack + part.slack,
    )
