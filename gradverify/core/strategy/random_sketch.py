"""Comparison of Jacobians too large to hold: random sums first, then a search for the entries that make them differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.decide.columns import ConfirmationState, judge_column_groups
from gradverify.core.decide.comparison import Comparison, ComparisonBuilder, Extremes
from gradverify.core.decide.context import JudgingContext, MeasuredProblem, Reconsider, judging_context
from gradverify.core.decide.tolerance import relative_tolerance
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.excuses.second_look import apply_excuses
from gradverify.core.forward import sampler as sampling
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.deadline import Deadline, OutOfTime, require_time
from gradverify.core.model.magnitudes import any_set
from gradverify.core.strategy.bisection import CachedRows, Suspect, wrong_columns, wrong_rows
from gradverify.core.strategy.random_sums import (
    BlockSums,
    RandomSums,
    SumDifference,
    differs,
    excess,
    measure_random_sums,
    split_into_blocks,
    sum_difference,
)
from gradverify.errors import GradverifyError

_COLUMNS = 8  # wrong columns that are named in all blocks together, and at least one in each
_LEAST = 200  # calls for the search of one block, as long as there are any left: fewer find no entry
_ROUNDS = 3  # rounds of the search, each without the columns found before
_SPREAD = 9.0  # ratio of the largest to the smallest product of two random weights, each from 1/2 to 3/2
_BLIND = 0.1  # of a sum: if more is allowed, not even a wrong factor of all entries shows
_SAMPLED = 2  # rows from which the usual size of an entry is taken


class UnnamedError(GradverifyError):
    """Random sums differ, and no entry was found to be the cause."""


class UnfinishedSearch(OutOfTime):
    """Random sums differ, and the time limit ended the search for the wrong entries."""

    def __init__(self, deadline: Deadline, columns: tuple[int, ...], entries: int) -> None:
        self.columns = columns  # input coordinates of the suspected columns found so far
        self.entries = entries  # number of entries of the Jacobian
        super().__init__(deadline)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The result of the search in one block."""

    suspects: tuple[Suspect, ...]
    clean: bool  # all sums agree once the columns of the suspects are left out
    ended: bool = False  # the limit on the number of calls ended the search


def compare_by_random_sums(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Compare random sums over all entries, and search for the wrong entries if they differ.

    Raises EvaluationError, UnnamedError if the sums differ and no wrong entry is found or if they show nothing, and
    UnfinishedSearch if they differ when time runs out.
    """
    generator = torch.Generator().manual_seed(settings.seed + 4)
    dtypes = measured.sampled.dtypes
    rtol = relative_tolerance(settings.tolerances, dtypes)
    whole = measure_random_sums(measured, rtol, generator)
    probed, gaps = whole.sums, whole.gaps
    known_rows = CachedRows(probed)
    entries = measured.sampled.point.numel() * measured.sampled.value.numel()
    suspects_found: list[Suspect] = []
    try:
        limit = _detection_limit(probed, known_rows, whole.directions, _as_limited(gaps), generator)
        before = _calls(probed)
        shares = split_into_blocks(whole)
        outcomes = list(
            _outcomes(known_rows, shares, settings.max_evaluations - (_calls(probed) - before), suspects_found)
        )
        suspects = tuple(set(suspects_found))
        found = _judged(measured, known_rows, suspects, settings, reconsider) if suspects else None
        unnamed = _unnamed(outcomes, found)
    except OutOfTime as end:
        if any(differs(each) and not each.is_tolerable for each in gaps):
            raise UnfinishedSearch(
                end.deadline, tuple(sorted({each.column for each in suspects_found})), entries
            ) from end
        raise
    counts = Counter() if found is None else found.counts
    if not counts[Code.MISMATCH]:
        if unnamed:
            ended = any(outcome.ended for _, outcome in unnamed)
            why = f"; the search ended after {settings.max_evaluations:,} calls" if ended else ""
            raise UnnamedError(f"random sums over the Jacobian differ, but no single entry was found to be wrong{why}")
        if any_set(probed.not_finite):
            raise UnnamedError(f"{int(probed.not_finite.sum())} outputs are not finite around the point")
        if any(any_set(_within_tolerance(found).allowed > _BLIND * found.size) for found in gaps):
            raise UnnamedError("random sums over the Jacobian are too noisy here to show anything")
    counts[Code.MATCH] = 0
    counts[Code.MATCH] = entries - counts.total()
    return Comparison(
        entries=entries,
        counts=counts,
        groups=() if found is None else found.groups,
        extremes=replace(
            Extremes() if found is None else found.extremes,
            limit=-math.inf if limit is None else limit,
            vacuous=found is None and not any_set(probed.vjps != 0),
        ),
        parts=(),
        at_least=bool(counts[Code.MISMATCH]),
        sums=len(probed.cotangents) * len(whole.directions),
        blocks_without_entry=tuple((of, wrt) for share, _ in unnamed for of in share.outputs for wrt in share.inputs),
    )


def _unnamed(outcomes: list[tuple[BlockSums, _Outcome]], found: Comparison | None) -> list[tuple[BlockSums, _Outcome]]:
    """Return the blocks whose sums differ and in which no wrong entry was found."""
    return [
        (share, outcome)
        for share, outcome in outcomes
        if not _is_named(share, found) and not (outcome.clean and _columns_agree(share.sums, outcome.suspects))
    ]


def _is_named(share: BlockSums, found: Comparison | None) -> bool:
    """True if some entry of the block was found to be wrong."""
    groups = () if found is None else found.groups
    return any(
        group.code is Code.MISMATCH and group.of in share.outputs and group.wrt in share.inputs for group in groups
    )


def _columns_agree(probe: RandomSums, suspects: tuple[Suspect, ...]) -> bool:
    """True if the sums over each suspected column alone agree: kinks within the steps had made it suspect."""
    for column in sorted({suspect.column for suspect in suspects}):
        if differs(sum_difference(probe, zero_outside(probe.measured.lengths.step, column))):
            return False
    return True


def _outcomes(
    known_rows: CachedRows, shares: list[BlockSums], budget: int, located: list[Suspect]
) -> Iterator[tuple[BlockSums, _Outcome]]:
    """Search every block with an equal part of the calls that are left; append the suspects found to `located`."""
    columns = math.ceil(_COLUMNS / max(1, len(shares)))
    for number, share in enumerate(shares):
        before = _calls(share.sums)
        part = max(_LEAST, budget // (len(shares) - number))
        yield share, _searched(share, known_rows, min(budget, part), columns, located)
        budget -= _calls(share.sums) - before


def _calls(probe: RandomSums) -> int:
    """Return the number of forward and backward calls made so far."""
    meter = probe.sampled.problem.meter
    return meter.forward + meter.backward


def _searched(share: BlockSums, known_rows: CachedRows, budget: int, enough: int, located: list[Suspect]) -> _Outcome:
    """Search for `enough` wrong columns with `budget` calls; each round leaves out the columns found before."""
    probe, gaps, offset = share.sums, share.gaps, len(located)
    before = _calls(probe)
    for _ in range(_ROUNDS):
        differing = [number for number, found in enumerate(gaps) if differs(found)]
        if not differing:
            return _Outcome(suspects=tuple(located[offset:]), clean=True)
        worst = max(differing, key=lambda each: excess(gaps[each]))
        columns: list[int] = []
        named = True
        for column in wrong_columns(probe, share.directions[worst], gaps[worst], budget - (_calls(probe) - before)):
            rows = wrong_rows(probe, known_rows, column)
            columns.append(column)
            named &= bool(rows)
            located += [Suspect(row=place, column=column) for place in rows]
            if len(columns) == enough:
                return _Outcome(suspects=tuple(located[offset:]), clean=False)
        if not columns or not named:
            # The error is too small to bisect: many entries may each be off by an error within the tolerance.
            tolerable = all(found.is_tolerable for found in gaps)
            return _Outcome(suspects=tuple(located[offset:]), clean=tolerable, ended=_calls(probe) - before >= budget)
        for direction in share.directions:
            direction[columns] = 0.0
        gaps = [sum_difference(probe, direction) for direction in share.directions]
    return _Outcome(suspects=tuple(located[offset:]), clean=not any(map(differs, gaps)))


def _judged(
    measured: MeasuredProblem,
    known_rows: CachedRows,
    suspects: tuple[Suspect, ...],
    settings: Settings,
    reconsider: Reconsider,
) -> Comparison:
    """Judge the suspects as entries of a small Jacobian, made of their rows and columns."""
    places = torch.tensor(sorted({suspect.row for suspect in suspects}))
    chosen = torch.tensor(sorted({suspect.column for suspect in suspects}))
    device = measured.sampled.point.device
    context = _focused_context(measured, known_rows, places.to(device), settings)
    chosen = chosen.to(device)
    excuse = partial(apply_excuses, measured, settings.seed)
    judged = judge_column_groups(context, chosen, ConfirmationState(), excuse)
    require_time(measured.sampled.problem.deadline)  # without which entries may be unfinished
    builder = ComparisonBuilder(context=context, keep=settings.max_elements)
    builder.add(chosen, _only_suspects(reconsider(context, chosen, judged), chosen, places, suspects))
    return builder.comparison()


def _only_suspects(judged: Judged, chosen: Tensor, places: Tensor, suspects: tuple[Suspect, ...]) -> Judged:
    """Mark all entries but the suspects as matching: those in the row of one suspect and the column of another."""
    is_suspect = torch.zeros_like(judged.kinked)
    rows = {column: number for number, column in enumerate(chosen.tolist())}
    columns = {place: number for number, place in enumerate(places.tolist())}
    for suspect in suspects:
        is_suspect[rows[suspect.column], columns[suspect.row]] = True
    return decide(judged, [(~is_suspect, Reason.NOT_SUSPECTED)])


def _focused_context(
    measured: MeasuredProblem, known_rows: CachedRows, places: Tensor, settings: Settings
) -> JudgingContext:
    """Return the judging context of single columns restricted to some outputs (k,)."""
    sampled = sampling.restricted_to_outputs(measured.sampled, places)
    noise = measured.noise.of(places)
    claimed = torch.stack([known_rows[place] for place in places.tolist()], dim=1)
    column_groups = single_columns(sampled.point.numel(), len(places), sampled.point.device)
    return judging_context(sampled, noise, measured.lengths, column_groups, claimed, settings)


def _within_tolerance(found: SumDifference) -> SumDifference:
    """Return the gap with `allowed` replaced by `tolerated` if its error bars hide everything and its sums are close.

    Noise as large as these bars would have shown in some of the sums.
    """
    blind = any_set(found.allowed > _BLIND * found.size)
    return replace(found, allowed=found.tolerated) if blind and found.is_close else found


def _as_limited(gaps: list[SumDifference]) -> list[SumDifference]:
    """Return the gaps as the detection limit counts them: if some sums differ, and may pass within rtol, plus rtol."""
    found = [_within_tolerance(each) for each in gaps]
    if not any(map(differs, found)):
        return found
    return [replace(each, allowed=each.allowed + each.rtol * each.size) for each in found]


def _detection_limit(
    probe: RandomSums,
    known_rows: CachedRows,
    directions: list[Tensor],
    gaps: list[SumDifference],
    generator: torch.Generator,
) -> float | None:
    """Return the relative error of an entry of usual size that would have shown in some sum, whatever the weights.

    The usual size is the median of the non-zero entries of a random row, weighted as in the sums. The worst of
    `_SAMPLED` rows counts. None if these have no non-zero entry, or if no output is finite around the point.
    """
    limits = []
    finite = (~probe.not_finite).nonzero().squeeze(1)
    if not len(finite):
        return None
    for place in finite[torch.randint(len(finite), (_SAMPLED,), generator=generator).to(finite.device)].tolist():
        entries = known_rows[place].abs()
        visible = []
        for direction, found in zip(directions, gaps, strict=True):
            terms = entries * direction.abs()
            nonzero = terms[terms > 0]
            if nonzero.numel():
                weights = probe.cotangents[:, place].abs()
                visible.append(
                    float((_SPREAD * found.allowed / (weights * nonzero.median())).nan_to_num(torch.inf).min())
                )
        if visible:
            limits.append(min(visible))
    return max(limits, default=None)
