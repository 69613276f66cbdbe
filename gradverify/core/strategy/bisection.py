"""Bisection from a random sum that differs to the wrong entries: halve the columns first, then the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import rows
from gradverify.core.backward.vjps import row
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.strategy.random_sums import (
    RandomSums,
    SumDifference,
    best_slope,
    differs,
    excess,
    sum_difference,
    sum_difference_at,
)

_LARGEST = 3  # rows of a wrong column that are compared before bisection: those of its largest entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """An entry that may be wrong."""

    row: int
    column: int


class CachedRows:
    """Rows of backward's Jacobian by output coordinate, each computed once and kept."""

    def __init__(self, probe: RandomSums) -> None:
        self._probe = probe
        self._known: dict[int, Tensor] = {}

    def __getitem__(self, output: int) -> Tensor:
        if output not in self._known:
            (self._known[output],) = rows(self._probe.measured.backward, [output])
        return self._known[output]

    @property
    def known(self) -> tuple[int, ...]:
        """Output coordinates of the rows computed so far."""
        return tuple(self._known)


def wrong_columns(probe: RandomSums, direction: Tensor, whole: SumDifference, budget: int) -> Iterator[int]:
    """Yield input coordinates whose column is wrong, largest error first, until `budget` forwards are used up."""
    meter, before = probe.sampled.problem.meter, probe.sampled.problem.meter.forward
    pending = [(direction.nonzero().squeeze(1), whole)]
    while pending and meter.forward - before < budget:
        support, gap_of_support = pending.pop()
        if len(support) == 1:
            yield int(support)
            continue
        left, right = support[: len(support) // 2], support[len(support) // 2 :]
        left_gap = sum_difference_at(probe, zero_outside(direction, left), gap_of_support.first_step)
        halves = [(left, left_gap), (right, _rest(gap_of_support, left_gap))]
        if not any(differs(part) for _, part in halves):  # a kink along one half only: take smaller steps
            halves = [(support, sum_difference(probe, zero_outside(direction, support))) for support, _ in halves]
        pending += [pair for pair in sorted(halves, key=lambda pair: excess(pair[1])) if differs(pair[1])]


def wrong_rows(probe: RandomSums, known_rows: CachedRows, column: int) -> list[int]:
    """Return a few output coordinates whose entry in this wrong column is wrong; empty if none could be found."""
    slopes = best_slope(probe.measured, probe.cotangents, zero_outside(probe.measured.lengths.step, column))
    size = slopes.value.abs().nan_to_num(0.0).masked_fill(probe.not_finite, 0.0)
    largest = size.topk(min(_LARGEST, len(size))).indices.tolist()
    wrong = [output for output in {*largest, *known_rows.known} if _is_wrong(probe, known_rows, slopes, output, column)]
    if wrong:
        return sorted(wrong)
    bisected = _bisected_row(probe, slopes, column)
    return [bisected] if bisected is not None and _is_wrong(probe, known_rows, slopes, bisected, column) else []


def _is_wrong(probe: RandomSums, known_rows: CachedRows, slopes: Estimate, output: int, column: int) -> bool:
    """True if the claimed entry differs from the measured one by more than its bar and the relative tolerance."""
    claimed = known_rows[output][column] * probe.measured.lengths.step[column]
    numeric, bar = slopes.value[output], slopes.bar[output]
    allowed = BAR_FACTOR * bar + probe.rtol * torch.fmax(claimed.abs(), numeric.abs())
    return bool(~((claimed - numeric).abs() <= allowed) & torch.isfinite(bar))


def _bisected_row(probe: RandomSums, slopes: Estimate, column: int) -> int | None:
    """Bisect the cotangent with the largest error down to one output; costs one vjp per level.

    None if that cotangent is zero.
    """
    value = slopes.value.nan_to_num(0.0) / probe.measured.lengths.step[column]
    errors = probe.cotangents @ value - probe.vjps[:, column]
    cotangent = probe.cotangents[int(errors.abs().argmax())]
    error = float(errors.abs().max() * torch.sign(errors[int(errors.abs().argmax())]))
    support = cotangent.nonzero().squeeze(1)
    while len(support) > 1:
        left, right = support[: len(support) // 2], support[len(support) // 2 :]
        part = zero_outside(cotangent, left)
        left_error = float(part @ value - row(probe.measured.backward, part)[column])
        support, error = (
            (left, left_error) if abs(left_error) >= abs(error - left_error) else (right, error - left_error)
        )
    return int(support) if len(support) else None


def _rest(whole: SumDifference, part: SumDifference) -> SumDifference:
    """Return the gap along the rest of a direction, given the gap along a part of it."""
    return SumDifference(
        error=whole.error - part.error,
        bar=whole.bar + part.bar,
        allowed=whole.allowed + part.allowed,
        output_rounding=whole.output_rounding + part.output_rounding,
        size=whole.size + part.size,
        rtol=whole.rtol,
        first_step=whole.first_step,
    )
