"""Verdicts on columns of the Jacobian: three steps for all entries, then the ladder and excuses for those in doubt."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.decide.context import Concerning, Excuses, JudgingContext, focused
from gradverify.core.decide.directional_sums import are_smooth, columns_do_not_add_up, confirmed_along_line
from gradverify.core.decide.ladder import DEPTH, judge_by_ladder
from gradverify.core.decide.screen import Screened, screen
from gradverify.core.decide.verdict import Code, Judged, Part, Parts, Reason, copy_of, decide, of_rows, put, stacked
from gradverify.core.estimate import richardson
from gradverify.core.estimate.stencil import Stencil, sample_stencil
from gradverify.core.model.deadline import OutOfTime
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.model.memory import chunks

_COLUMN_GROUPS = 64  # column groups with clear mismatches that the ladder judges, at most; half of the rest at a time
_FEW = 3  # of them at a time, at least
_ENTRIES = 1024  # clear mismatches that the ladder judges at a time
_NOT_DETERMINED = (Code.UNDETERMINED, Code.UNDEFINED, Code.JUMP, Code.UNFINISHED)
_CLEAR = 2.0  # times the allowed error: a larger one is clear


class ConfirmationState:
    """State of the clear mismatches: column groups that the ladder may still sample, and whether it confirmed all."""

    def __init__(self) -> None:
        self._groups_left = _COLUMN_GROUPS
        self._refuted = False

    def sample(self, accused: Tensor) -> Tensor:
        """Return the mask of the mismatches (C, m) for the ladder to judge: the same outputs of some column groups.

        The groups are random ones: three, or as many more, up to half of those left, as it takes to have every output
        with a mismatch among them, since a kink or rounding may be that of a single output. Of too many outputs, random
        ones are left out.
        """
        groups, limit = _shuffled(accused.any(dim=1).nonzero().squeeze(1)), max(1, self._groups_left // 2)
        if not len(groups):
            return accused
        outputs = accused.any(dim=0).nonzero().squeeze(1)
        first = accused[groups][:, outputs].to(torch.int8).argmax(dim=0)  # the first group of each output
        needed = torch.unique(torch.cat([first, torch.arange(min(_FEW, len(groups)), device=first.device)]))
        rows = groups[needed[:limit]].sort().values
        outputs = accused[rows].any(dim=0).nonzero().squeeze(1)
        sampled = torch.zeros_like(accused)
        place = (rows.unsqueeze(1), _shuffled(outputs)[: _ENTRIES // len(rows)])
        sampled[place] = accused[place]
        return sampled

    def record(self, sampled: Tensor, judged: Judged) -> bool:
        """Record the verdicts of the ladder on mismatches (C, m); True if it has confirmed all so far."""
        self._groups_left -= int(sampled.any(dim=1).sum())
        self._refuted |= not _all_mismatch(judged, sampled)
        return not self._refuted


def judge_all(
    context: JudgingContext, excuse: Excuses, stencil: Stencil | None = None, known: Part | None = None
) -> Parts:
    """Return the verdicts on the entries (C, m) of all column groups (C,), in order.

    `excuse` gets the mismatches that the ladder confirms. `stencil` holds samples of all column groups at the first
    steps, if they exist; `known` are groups that have been judged.
    """
    history = ConfirmationState()
    if stencil is not None:
        return [(stencil.chosen, _judge(context, stencil, history, excuse))]
    groups = torch.arange(context.column_groups.count, device=context.sampled.point.device)
    rest = groups if known is None else groups[~torch.isin(groups, known[0])]
    parts = [
        (chosen, judge_column_groups(context, chosen, history, excuse))
        for chosen in chunks(rest, richardson.DEPTH * context.numbers_per_sample)
    ]
    if known is None or not parts:
        return parts if known is None else [known]
    order = torch.cat([known[0], rest]).argsort()
    return [(groups, of_rows(stacked([known[1], *(judged for _, judged in parts)]), order))]


def judge_column_groups(context: JudgingContext, chosen: Tensor, history: ConfirmationState, excuse: Excuses) -> Judged:
    """Judge all entries of column groups (C,): three steps for all, the ladder and `excuse` for those in doubt."""
    first_steps = richardson.steps(context.lengths)
    return _judge(context, sample_stencil(context.sampled, context.column_groups, chosen, first_steps), history, excuse)


def _judge(context: JudgingContext, stencil: Stencil, history: ConfirmationState, excuse: Excuses) -> Judged:
    """Return the verdicts on the column groups of a stencil; when time runs out, the rest is UNFINISHED."""
    first = screen(context, stencil)
    if not any_set(first.doubt):
        return first.judged
    judged, remaining = first.judged, first.doubt
    try:
        for stage in _stages(context, stencil.chosen, first, history, excuse):
            judged, remaining = stage
    except OutOfTime:
        known = judged.error.masked_fill(judged.error.isnan(), 0.0)  # nan, as of samples not taken, is no worst error
        judged = decide(judged, [(remaining, Reason.OUT_OF_TIME)], error=torch.where(remaining, known, judged.error))
    return _with_propagated_nan(context, stencil.chosen, judged)


def _stages(
    context: JudgingContext, chosen: Tensor, first: Screened, history: ConfirmationState, excuse: Excuses
) -> Iterator[tuple[Judged, Tensor]]:
    """Yield the verdicts after each stage, with the mask of entries (C, m) for later ones; the other verdicts stand.

    Of many clear mismatches a sample is judged: by one ladder along a line that moves all columns, or by that of each
    column where the line does not confirm them, and by the excuses. If all of these stay mismatches, the others only
    need the confirmation of a difference along one direction. If some do, only a few column groups of what is still in
    doubt are examined: the function is wrong, whatever the others are.
    """
    judged, in_doubt = copy_of(first.judged), first.doubt
    clear = in_doubt & (first.judged.code == Code.MISMATCH) & ~first.bends
    clear &= first.judged.error > _CLEAR * first.judged.allowed
    unclear = in_doubt & ~clear
    sampled = history.sample(clear)
    remaining, limit = clear & ~sampled, max(_FEW, int(sampled.any(dim=1).sum()))
    on_line = torch.zeros_like(sampled)
    if context.column_groups.count > 1 and any_set(sampled):
        on_line = sampled & confirmed_along_line(context, chosen, judged, sampled, excuse)
        judged = decide(judged, [(on_line, Reason.DIFFERS_IN_SUM)])
    before, alone = judged, sampled & ~on_line
    examined = _of_some_groups(unclear, limit) if any_set(on_line) else unclear
    judged = _examined(context, chosen, before, alone | examined, on_line, excuse)
    if not _all_mismatch(judged, sampled) and not torch.equal(examined, unclear):
        examined = unclear
        judged = _examined(context, chosen, before, alone | examined, on_line, excuse)
    judged = _left_in_doubt(judged, unclear & ~examined)
    yield judged, remaining
    if history.record(sampled, judged):
        together = _confirmed_together(context, chosen, remaining, judged)
        judged, remaining = decide(judged, [(together, Reason.DIFFERS_IN_SUM)]), remaining & ~together
        yield judged, remaining
    if any_set(judged.code[sampled] == Code.MISMATCH):
        examined = _of_some_groups(remaining, limit)
        judged, remaining = _left_in_doubt(judged, remaining & ~examined), examined
        yield judged, remaining
    none = torch.zeros_like(remaining)
    yield _examined(context, chosen, judged, remaining, none, excuse), none


def _examined(
    context: JudgingContext, chosen: Tensor, before: Judged, entries: Tensor, confirmed: Tensor, excuse: Excuses
) -> Judged:
    """Return the verdicts on `entries` (C, m) by ladder and excuses; those `confirmed` get the excuses of backward."""
    judged = copy_of(before)
    _apply_ladder(context, chosen, entries, judged)
    _apply_excuses(context, chosen, confirmed, judged, excuse, Concerning.BACKWARD)
    _apply_excuses(context, chosen, entries, judged, excuse)
    return judged


def _left_in_doubt(judged: Judged, entries: Tensor) -> Judged:
    """Return the verdicts with entries (C, m) left in doubt, unless they agree."""
    return decide(judged, [(entries & (judged.code != Code.MATCH), Reason.OTHERS_DIFFER)])


def _all_mismatch(judged: Judged, entries: Tensor) -> bool:
    """True if all of these entries (C, m) are mismatches."""
    return all_set(judged.code[entries] == Code.MISMATCH)


def _of_some_groups(entries: Tensor, count: int) -> Tensor:
    """Return the entries (C, m) of some random column groups among those with any, at most `count`."""
    groups = _shuffled(entries.any(dim=1).nonzero().squeeze(1))[:count]
    kept = torch.zeros_like(entries)
    kept[groups] = entries[groups]
    return kept


def _apply_ladder(context: JudgingContext, chosen: Tensor, doubt: Tensor, judged: Judged) -> None:
    """Write the verdicts of the ladder on entries in doubt (C, m) to `judged`."""
    rows = doubt.any(dim=1).nonzero().squeeze(1)
    for part in chunks(rows, 2 * DEPTH * context.numbers_per_sample):
        outputs = doubt[part].any(dim=0).nonzero().squeeze(1)  # in doubt for these column groups
        put(judged, doubt, part, outputs, judge_by_ladder(focused(context, outputs), chosen[part]))


def _apply_excuses(
    context: JudgingContext,
    chosen: Tensor,
    selected: Tensor,
    judged: Judged,
    excuse: Excuses,
    concerning: Concerning = Concerning.EVERYTHING,
) -> None:
    """Write the verdicts on excused mismatches among the `selected` entries (C, m) to `judged`."""
    accused = selected & (judged.code == Code.MISMATCH)
    rows = accused.any(dim=1).nonzero().squeeze(1)
    if len(rows):
        outputs = torch.arange(accused.shape[1], device=rows.device)
        put(judged, accused, rows, outputs, excuse(context, chosen[rows], of_rows(judged, rows), concerning))


def _confirmed_together(context: JudgingContext, chosen: Tensor, accused: Tensor, judged: Judged) -> Tensor:
    """Mask of the mismatches (C, m) of outputs whose derivative along a random direction these entries give.

    The direction displaces the accused columns. If one of their numeric entries was wrong, it would show in the sum.
    """
    rows = accused.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return accused
    measured, generator = of_rows(judged, rows), torch.Generator().manual_seed(len(rows))
    differs = columns_do_not_add_up(context, chosen[rows], measured, generator) | ~are_smooth(measured)
    return accused & ~differs


def _shuffled(indices: Tensor) -> Tensor:
    """Return the indices in a random order: errors may be periodic."""
    return indices[
        torch.randperm(len(indices), generator=torch.Generator().manual_seed(len(indices))).to(indices.device)
    ]


def _with_propagated_nan(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Make nan claims undetermined if the same input has a derivative that is not finite in another entry."""
    claimed, column_of = context.claimed[chosen], context.column_groups.column_of[chosen]
    nan = (judged.code == Code.MISMATCH) & claimed.isnan()
    if not any_set(nan):
        return judged
    undetermined = torch.isin(judged.code, torch.tensor(_NOT_DETERMINED, dtype=torch.int8, device=column_of.device))
    unknown = (judged.code == Code.UNDEFINED) | (judged.code == Code.UNFINISHED)
    source = (claimed.isinf() & undetermined) | (claimed.isnan() & unknown)
    infinite = torch.zeros_like(context.sampled.point, dtype=torch.bool)
    infinite[column_of[source & (column_of >= 0)]] = True
    return decide(judged, [(nan & infinite[column_of.clamp(min=0)], Reason.NAN_PROPAGATED)])
