"""Comparison of Jacobians too large to hold: random sums first, then a search for the entries that make them differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gradverify.core.decide.columns import judge_column_groups
from gradverify.core.decide.compare import relative_tolerance
from gradverify.core.decide.comparison import Comparison, Extremes, comparison_of
from gradverify.core.decide.context import MeasuredProblem, judging_context
from gradverify.core.decide.verdict import Code
from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.forward.sampler import restricted_to_outputs
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.generators import MAGNITUDES
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.strategy.bisection import CachedRows, single_wrong_column, wrong_columns, wrong_rows
from gradverify.core.strategy.random_sums import (
    RandomSums,
    SumDifference,
    differing,
    measure_random_sums,
    split_into_blocks,
    sum_difference,
)
from gradverify.core.tuning import FEW, SEVERAL, SMALL_PART
from gradverify.deadline import Deadline, OutOfTime, require_time
from gradverify.errors import GradverifyError

_COLUMNS = 8  # wrong columns that are named in all blocks together, and at least one in each
_LEAST = 200  # calls for the search of one block, as long as there are any left: fewer find no entry


class UnnamedError(GradverifyError):
    """Random sums differ, and no entry was found to be the cause."""

    def __init__(self, why: str, *, may_be_rounding: bool = False) -> None:
        self.may_be_rounding = may_be_rounding  # within the relative tolerance, and the search was not cut short
        super().__init__(why)


class UnfinishedSearch(OutOfTime):
    """Random sums differ, and the time limit ended the search for the wrong entries."""

    def __init__(self, deadline: Deadline, columns: tuple[int, ...], entries: int) -> None:
        self.columns = columns  # input coordinates of the suspected columns found so far
        self.entries = entries  # number of entries of the Jacobian
        super().__init__(deadline)


@dataclass(slots=True, kw_only=True)
class _Search:
    """The search for the wrong entries of one block; mutable."""

    block: RandomSums
    rows: set[int] = field(default_factory=set)  # output and input coordinates of the suspected entries so far
    columns: set[int] = field(default_factory=set)
    clean: bool = False  # all sums agree once these columns are left out
    ended: bool = False  # the limit on the number of calls ended the search


def compare_by_random_sums(measured: MeasuredProblem, entrywise: MeasuredProblem) -> Comparison:
    """Compare random sums over all entries, and search for the wrong entries if they differ.

    `entrywise` has the differences by which single entries are judged: those of float64 if the dtype is narrower.
    Raises EvaluationError, UnnamedError if the sums differ and no wrong entry is found or if they show nothing, and
    UnfinishedSearch if they differ when time runs out.
    """
    settings = measured.settings
    generator = torch.Generator().manual_seed(settings.seed + 4)
    rtol = relative_tolerance(settings.tolerances, measured.sampled.dtypes)
    whole, known_rows = measure_random_sums(measured, rtol, generator), CachedRows(measured.backward)
    searches: list[_Search] = []
    try:
        limit = _detection_limit(whole, known_rows, generator)
        meter = measured.sampled.problem.meter
        last = meter.calls + settings.max_evaluations
        searches += [_Search(block=block) for block in split_into_blocks(whole)]
        for number, search in enumerate(searches):
            left = last - meter.calls
            budget = min(left, max(_LEAST, left // (len(searches) - number)))
            _run(search, known_rows, budget, math.ceil(_COLUMNS / len(searches)))
        found = _judged(entrywise, known_rows, searches) if any(search.rows for search in searches) else None
        unnamed = [search for search in searches if not _is_explained(search, found)]
    except OutOfTime as end:
        if any(gap.differs and not gap.is_within_rtol for gap in whole.gaps):
            columns = sorted(set().union(*(search.columns for search in searches)))
            raise UnfinishedSearch(end.deadline, tuple(columns), measured.entries) from end
        raise
    counts = Counter() if found is None else found.counts
    if not counts[Code.MISMATCH]:
        if unnamed:
            ended = any(search.ended for search in unnamed)
            why = f"; the search ended after {settings.max_evaluations:,} calls" if ended else ""
            raise UnnamedError(
                f"random sums over the Jacobian differ, but no single entry was found to be wrong{why}",
                may_be_rounding=not ended and all(gap.is_within_rtol for gap in whole.gaps),
            )
        if not all_set(whole.finite):
            raise UnnamedError(f"{int((~whole.finite).sum())} outputs are not finite around the point")
        if any(any_set(_within_tolerance(gap).allowed > SMALL_PART * gap.size) for gap in whole.gaps):
            raise UnnamedError("random sums over the Jacobian are too noisy here to show anything")
    counts[Code.MATCH] = 0
    counts[Code.MATCH] = measured.entries - counts.total()
    return Comparison(
        entries=measured.entries,
        counts=counts,
        groups=() if found is None else found.groups,
        extremes=replace(
            Extremes() if found is None else found.extremes,
            limit=limit,
            vacuous=found is None and not any_set(whole.vjps != 0),
        ),
        at_least=bool(counts[Code.MISMATCH]),
        sums=len(whole.cotangents) * len(whole.directions),
        blocks_without_entry=tuple(
            (of, wrt) for search in unnamed for of in search.block.outputs for wrt in search.block.inputs
        ),
    )


def _is_explained(search: _Search, found: Comparison | None) -> bool:
    """True if some entry of the block was found to be wrong, or if its sums differ because of kinks alone.

    Kinks within the steps make columns suspect. Then the sums over each of these columns alone agree.
    """
    block, lengths = search.block, search.block.measured.lengths.step
    groups = () if found is None else found.groups
    if any(group.code is Code.MISMATCH and group.of in block.outputs and group.wrt in block.inputs for group in groups):
        return True
    columns = (zero_outside(lengths, k) for k in sorted(search.columns))
    return search.clean and not any(sum_difference(block, column).differs for column in columns)


def _run(search: _Search, known_rows: CachedRows, budget: int, enough: int) -> None:
    """Search for `enough` wrong columns with `budget` calls; each round leaves out the columns found before."""
    block, meter = search.block, search.block.measured.sampled.problem.meter
    directions, gaps, last = block.directions, block.gaps, meter.calls + budget
    for _ in range(FEW):
        if not any(gap.differs for gap in gaps):
            break
        columns: list[int] = []
        named = True
        for column, rows in _wrong_places(block, known_rows, directions, gaps, last):
            columns.append(column)
            named &= bool(rows)
            if rows:
                search.rows.update(rows)
                search.columns.add(column)
            if len(columns) == enough:
                return
        search.ended = meter.calls >= last
        if not columns or not named or search.ended:
            # No calls are left, or the error is too small to bisect: many entries may each be off within the tolerance.
            search.clean = all(gap.is_within_rtol for gap in gaps)
            return
        left_out = torch.tensor(columns, device=directions[0].device)
        directions = [direction.index_fill(0, left_out, 0.0) for direction in directions]
        gaps = [sum_difference(block, direction) for direction in directions]
    search.clean = not any(gap.differs for gap in gaps)


def _wrong_places(
    block: RandomSums, known_rows: CachedRows, directions: Sequence[Tensor], gaps: Sequence[SumDifference], last: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield wrong columns with some of their wrong rows, the largest error first, until `last` calls in all."""
    single = single_wrong_column(directions, gaps)
    if single is not None and (rows := wrong_rows(block, known_rows, single)):
        yield single, rows
        return
    for column in wrong_columns(block, *differing(gaps, directions)[0], last):
        yield column, wrong_rows(block, known_rows, column)


def _judged(measured: MeasuredProblem, known_rows: CachedRows, searches: Sequence[_Search]) -> Comparison:
    """Judge the suspects, and all other entries in their rows and columns, as a small Jacobian."""
    point = measured.sampled.point
    places = torch.tensor(sorted(set().union(*(search.rows for search in searches))), device=point.device)
    chosen = torch.tensor(sorted(set().union(*(search.columns for search in searches))), device=point.device)
    sampled = restricted_to_outputs(measured.sampled, places)
    claimed = torch.stack([known_rows[place] for place in places.tolist()], dim=1)
    column_groups = single_columns(len(point), len(places), point.device)
    context = judging_context(replace(measured, sampled=sampled), column_groups, claimed, measured.noise.of(places))
    judged = judge_column_groups(context, chosen)
    require_time(measured.sampled.problem.deadline)  # without which entries may be unfinished
    return comparison_of(context, chosen, context.reconsider(context, chosen, judged))


def _within_tolerance(found: SumDifference) -> SumDifference:
    """Return the gap with `allowed` replaced by `tolerated` if its error bars hide everything and its sums are close.

    Bars above a small part of the sums hide even a wrong factor of all entries. Noise as large as these bars would have
    shown in some of the sums.
    """
    blind = any_set(found.allowed > SMALL_PART * found.size)
    return replace(found, allowed=found.rtol_allows) if blind and found.is_close else found


def _detection_limit(whole: RandomSums, known_rows: CachedRows, generator: torch.Generator) -> float:
    """Return the relative error of an entry of usual size that would have shown in some sum, whatever the weights.

    The usual size is the median of the non-zero entries of a random row, weighted as in the sums. The worst of
    a few rows counts. If some sums differ, and may pass within rtol, an entry shows only beyond rtol. -inf if the
    rows have no non-zero entry, or if no output is finite around the point.
    """
    finite = whole.finite.nonzero().squeeze(1)
    if not len(finite):
        return -math.inf
    gaps = [_within_tolerance(gap) for gap in whole.gaps]
    passes_within_rtol = any(gap.differs for gap in gaps)
    allowed = [gap.allowed + gap.slack if passes_within_rtol else gap.allowed for gap in gaps]
    limits = []
    spread = (MAGNITUDES[1] / MAGNITUDES[0]) ** 2  # ratio of the largest to the smallest product of two random weights
    for place in finite[torch.randint(len(finite), (SEVERAL,), generator=generator).to(finite.device)].tolist():
        weights, visible = whole.cotangents[:, place].abs(), []
        for direction, error in zip(whole.directions, allowed, strict=True):
            terms = known_rows[place].abs() * direction.abs()
            nonzero = terms[terms > 0]
            if nonzero.numel():
                visible.append(float((spread * error / (weights * nonzero.median())).nan_to_num(torch.inf).min()))
        if visible:
            limits.append(min(visible))
    return max(limits, default=-math.inf)
