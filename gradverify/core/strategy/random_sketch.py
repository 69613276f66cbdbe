"""The comparison of Jacobians that are too large to write down: random sums first, then whatever they point to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.decide.columns import judge_moves
from gradverify.core.decide.comparison import Comparison, ComparisonBuilder
from gradverify.core.decide.confirmation import Patience
from gradverify.core.decide.context import JudgingContext, MeasuredProblem, Reconsider, judging_context
from gradverify.core.decide.tolerance import relative_tolerance
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.excuses.second_look import second_look
from gradverify.core.forward import sampler as sampling
from gradverify.core.model.deadline import OutOfTime
from gradverify.core.model.magnitudes import any_set
from gradverify.core.strategy.bisection import Rows, Suspect, wrong_columns, wrong_rows
from gradverify.core.strategy.random_sums import Gap, Probe, Share, divided, gap, probe, ratio, wide
from gradverify.errors import GradverifyError

_COLUMNS = 8  # wrong columns that are named, or one in each block; more of them are "at least"
_LEAST = 200  # calls that a block is searched with, as long as there are any: fewer find no entry
_ROUNDS = 3  # of probing again without the columns found
_SPREAD = 9.0  # the product of two random entries is at most so many times another one's
_BLIND = 0.1  # of a sum: if more is allowed, not even a wrong factor of all entries shows
_SAMPLED = 2  # rows looked at to say how large an entry is


class UnnamedError(GradverifyError):
    """Random sums differ, and no entry could be found to be the cause."""


class UnfinishedSearch(OutOfTime):
    """Random sums differ, and the time limit ended the search for the entries that are the cause."""

    def __init__(self, seconds: float, columns: tuple[int, ...], entries: int) -> None:
        self.columns = columns  # input coordinates in whose columns the sums differ, as far as the search had come
        self.entries = entries  # of the Jacobian
        super().__init__(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What the search has come to."""

    suspects: tuple[Suspect, ...]
    clean: bool  # without the columns of the suspects, all sums come out right
    ended: bool = False  # by the number of calls that a search may take


def compare_by_probing(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Compare random sums over all entries, and name the wrong entries where they differ.

    Raises EvaluationError, UnnamedError where the sums differ for no reason that can be found, and UnfinishedSearch
    where they differ when time runs out.
    """
    generator = torch.Generator().manual_seed(settings.seed + 4)
    dtypes = measured.sampled.dtypes
    rtol = relative_tolerance(settings.tolerances, dtypes)
    asked, directions, gaps = probe(
        measured.sampled, measured.noise, measured.lengths, measured.backward, rtol, generator
    )
    answers = Rows(asked)
    entries = measured.sampled.point.numel() * measured.sampled.value.numel()
    located: list[Suspect] = []
    try:
        limit = _limit(asked, answers, directions, _shown(gaps), generator)
        begun = _calls(asked)
        shares = divided(asked, directions, gaps)
        outcomes = list(_outcomes(answers, shares, settings.max_evaluations - (_calls(asked) - begun), located))
        suspects = tuple(set(located))
        found = _judged(measured, answers, suspects, settings, reconsider) if suspects else None
        unnamed = _unnamed(outcomes, found)
    except OutOfTime as end:
        if any(wide(each) and not each.tolerable for each in gaps):
            raise UnfinishedSearch(end.seconds, tuple(sorted({each.column for each in located})), entries) from end
        raise
    counts = Counter() if found is None else found.counts
    if not counts[Code.MISMATCH]:
        if unnamed:
            ended = any(outcome.ended for _, outcome in unnamed)
            why = f"; the search ended after {settings.max_evaluations:,} calls" if ended else ""
            raise UnnamedError(f"random sums over the Jacobian differ, but no single entry was found to be wrong{why}")
        if any_set(asked.left_out):
            raise UnnamedError(f"{int(asked.left_out.sum())} outputs are not finite around the point")
        if any(any_set(_heard(found).allowed > _BLIND * found.size) for found in gaps):
            raise UnnamedError("random sums over the Jacobian are too noisy here to show anything")
    counts[Code.MATCH] = 0
    counts[Code.MATCH] = entries - counts.total()
    return Comparison(
        entries=entries,
        counts=counts,
        groups=() if found is None else found.groups,
        max_error=0.0 if found is None else found.max_error,
        max_error_bar=0.0 if found is None else found.max_error_bar,
        detection_limit=limit,
        vacuous=found is None and not any_set(asked.answers != 0),
        parts=(),
        at_least=bool(counts[Code.MISMATCH]),
        sums=len(asked.cotangents) * len(directions),
        unnamed=tuple((of, wrt) for share, _ in unnamed for of in share.outputs for wrt in share.inputs),
    )


def _unnamed(outcomes: list[tuple[Share, _Outcome]], found: Comparison | None) -> list[tuple[Share, _Outcome]]:
    """Return the blocks whose sums differ and in which no wrong entry was found."""
    return [
        (share, outcome)
        for share, outcome in outcomes
        if not _is_named(share, found) and not (outcome.clean and _are_right(share.asked, outcome.suspects))
    ]


def _is_named(share: Share, found: Comparison | None) -> bool:
    """Tell whether some entry of the blocks was found to be wrong."""
    groups = () if found is None else found.groups
    return any(
        group.code is Code.MISMATCH and group.of in share.outputs and group.wrt in share.inputs for group in groups
    )


def _are_right(asked: Probe, suspects: tuple[Suspect, ...]) -> bool:
    """Tell whether columns whose suspected entries were found right are so as a whole: kinks were on the way."""
    for column in sorted({suspect.column for suspect in suspects}):
        direction = torch.zeros_like(asked.sampled.point)
        direction[column] = asked.lengths.step[column]
        if wide(gap(asked, direction)):
            return False
    return True


def _outcomes(
    answers: Rows, shares: list[Share], most: int, located: list[Suspect]
) -> Iterator[tuple[Share, _Outcome]]:
    """Search every block with an equal part of the calls that are left; suspects go to `located` as they are found."""
    columns = math.ceil(_COLUMNS / max(1, len(shares)))
    for number, share in enumerate(shares):
        before = _calls(share.asked)
        mine = max(_LEAST, most // (len(shares) - number))
        yield share, _searched(share, answers, min(most, mine), columns, located)
        most -= _calls(share.asked) - before


def _calls(asked: Probe) -> int:
    meter = asked.sampled.problem.meter
    return meter.forward + meter.backward


def _searched(share: Share, answers: Rows, most: int, enough: int, located: list[Suspect]) -> _Outcome:
    """Find `enough` wrong columns by `most` calls, column after column, probing again without those found."""
    asked, gaps, first = share.asked, share.gaps, len(located)
    begun = _calls(asked)
    for _ in range(_ROUNDS):
        off = [number for number, found in enumerate(gaps) if wide(found)]
        if not off:
            return _Outcome(suspects=tuple(located[first:]), clean=True)
        number = max(off, key=lambda each: ratio(gaps[each]))
        columns: list[int] = []
        named = True
        for column in wrong_columns(asked, share.directions[number], gaps[number], most - (_calls(asked) - begun)):
            rows = wrong_rows(asked, answers, column)
            columns.append(column)
            named &= bool(rows)
            located += [Suspect(row=place, column=column) for place in rows]
            if len(columns) == enough:
                return _Outcome(suspects=tuple(located[first:]), clean=False)
        if not columns or not named:
            # Too small for a search to follow: many entries may be off by what the tolerance allows each.
            tolerable = all(found.tolerable for found in gaps)
            return _Outcome(suspects=tuple(located[first:]), clean=tolerable, ended=_calls(asked) - begun >= most)
        for direction in share.directions:
            direction[columns] = 0.0
        gaps = [gap(asked, direction) for direction in share.directions]
    return _Outcome(suspects=tuple(located[first:]), clean=not any(map(wide, gaps)))


def _judged(
    measured: MeasuredProblem, answers: Rows, suspects: tuple[Suspect, ...], settings: Settings, reconsider: Reconsider
) -> Comparison:
    """Judge the suspects one by one, as every entry of a small Jacobian is."""
    places = torch.tensor(sorted({suspect.row for suspect in suspects}))
    chosen = torch.tensor(sorted({suspect.column for suspect in suspects}))
    device = measured.sampled.point.device
    context = _focused_bench(measured, answers, places.to(device), settings)
    chosen = chosen.to(device)
    judged = second_look(context, measured, chosen, judge_moves(context, chosen, Patience()), settings)
    builder = ComparisonBuilder(context=context, keep=settings.max_elements)
    builder.add(chosen, _only_suspects(reconsider(context, chosen, judged), chosen, places, suspects))
    return builder.comparison()


def _only_suspects(judged: Judged, chosen: Tensor, places: Tensor, suspects: tuple[Suspect, ...]) -> Judged:
    """Leave out what no search pointed to: entries in a row of one suspect and the column of another."""
    mine = torch.zeros_like(judged.kinked)
    rows = {column: number for number, column in enumerate(chosen.tolist())}
    columns = {place: number for number, place in enumerate(places.tolist())}
    for suspect in suspects:
        mine[rows[suspect.column], columns[suspect.row]] = True
    return decide(judged, [(~mine, Reason.NOT_SUSPECTED)])


def _focused_bench(measured: MeasuredProblem, answers: Rows, places: Tensor, settings: Settings) -> JudgingContext:
    sampled = sampling.focused(measured.sampled, places)
    noise = measured.noise.of(places)
    claimed = torch.stack([answers[place] for place in places.tolist()], dim=1)
    column_groups = single_columns(sampled.point.numel(), len(places), sampled.point.device)
    return judging_context(sampled, noise, measured.lengths, column_groups, claimed, settings)


def _heard(found: Gap) -> Gap:
    """Return a gap with what its sums show: where bars hide everything and the sums are close, what is tolerated.

    Noise that could have hidden something would have been heard in some of them.
    """
    blind = any_set(found.allowed > _BLIND * found.size)
    return replace(found, allowed=found.tolerated) if blind and found.close else found


def _shown(gaps: list[Gap]) -> list[Gap]:
    """Return the gaps with what their sums show: where some are off and pass all the same, what is tolerated too."""
    found = [_heard(each) for each in gaps]
    if not any(map(wide, found)):
        return found
    return [replace(each, allowed=each.allowed + each.rtol * each.size) for each in found]


def _limit(
    asked: Probe, answers: Rows, directions: list[Tensor], gaps: list[Gap], generator: torch.Generator
) -> float | None:
    """Return the relative error of one entry of ordinary size that no random vectors would have hidden.

    Ordinary is the median of the non-zero entries of a few rows, each weighed as the sums weigh it.
    """
    limits = []
    live = (~asked.left_out).nonzero().squeeze(1)
    if not len(live):
        return None
    for place in live[torch.randint(len(live), (_SAMPLED,), generator=generator).to(live.device)].tolist():
        entries = answers[place].abs()
        seen = []
        for direction, found in zip(directions, gaps, strict=True):
            shares = entries * direction.abs()
            ordinary = shares[shares > 0]
            if ordinary.numel():
                own = asked.cotangents[:, place].abs()
                seen.append(float((_SPREAD * found.allowed / (own * ordinary.median())).nan_to_num(torch.inf).min()))
        if seen:
            limits.append(min(seen))
    return max(limits, default=None)
