"""Verdicts on columns of the Jacobian: three steps for all entries, then the ladder and excuses for those in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from gradverify.core.decide.backward_rounding import excuse_backward_rounding
from gradverify.core.decide.compare import differs_clearly, largest_resolving_bar
from gradverify.core.decide.context import JudgingContext, focused, of_column_groups
from gradverify.core.decide.directional import are_smooth, columns_do_not_add_up, confirmed_along_line
from gradverify.core.decide.ladder import judge_by_ladder, judge_by_largest_steps
from gradverify.core.decide.oblique_kinks import excuse_oblique
from gradverify.core.decide.screen import Look, Screened, joined_looks, screen
from gradverify.core.decide.stairs import excuse_stairs
from gradverify.core.decide.verdict import (
    Code,
    Judged,
    Part,
    Reason,
    copy_of,
    decide,
    of_rows,
    put,
    replaced,
    stacked,
)
from gradverify.core.estimate import richardson
from gradverify.core.estimate.stencil import Stencil, sample_stencil
from gradverify.core.estimate.tableau import HALVINGS, RUNGS
from gradverify.core.model.generators import shuffled
from gradverify.core.model.limits import HELD, chunks
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.tuning import EXAMINED, FEW
from gradverify.deadline import OutOfTime

# (context, column groups (C,), verdicts (C, m) on them) -> verdicts; only mismatches change
Excuse = Callable[[JudgingContext, Tensor, Judged], Judged]
# What may explain a mismatch before it is reported. Each sees the mismatches that the previous ones have left.
EXCUSES: tuple[Excuse, ...] = (excuse_backward_rounding, excuse_oblique, excuse_stairs)

_ENTRIES = 1024  # clear mismatches that the ladder judges at a time
_NOT_DETERMINED = (Code.UNDETERMINED, Code.UNDEFINED, Code.JUMP, Code.UNFINISHED)


class ConfirmationState:
    """State of the clear mismatches: column groups that the ladder may still sample, and whether it refuted any."""

    def __init__(self) -> None:
        self._groups_left = EXAMINED
        self.refuted = False

    def sample(self, accused: Tensor) -> Tensor:
        """Return the mask of the mismatches (C, m) for the ladder to judge: the same outputs of some column groups.

        The groups are random ones: three, or as many more, up to half of those left, as it takes to have every output
        with a mismatch among them, since a kink or rounding may be that of a single output. Of too many outputs, random
        ones are left out.
        """
        groups, limit = shuffled(accused.any(dim=1).nonzero().squeeze(1)), max(1, self._groups_left // 2)
        if not len(groups):
            return accused
        outputs = accused.any(dim=0).nonzero().squeeze(1)
        first = accused[groups][:, outputs].to(torch.int8).argmax(dim=0)  # the first group of each output
        needed = torch.unique(torch.cat([first, torch.arange(min(FEW, len(groups)), device=first.device)]))
        rows = groups[needed[:limit]].sort().values
        self._groups_left -= len(rows)
        outputs = accused[rows].any(dim=0).nonzero().squeeze(1)
        sampled = torch.zeros_like(accused)
        place = (rows.unsqueeze(1), shuffled(outputs)[: _ENTRIES // len(rows)])
        sampled[place] = accused[place]
        return sampled


def judge_all(context: JudgingContext, stencil: Stencil | None, settled: Look | None) -> Judged:
    """Return the verdicts on the entries (C, m) of all column groups (C,).

    `stencil` holds samples at the first steps, if they exist; `settled` is a first look at groups that leaves only
    clear mismatches in doubt.
    """
    history, groups = ConfirmationState(), torch.arange(context.column_groups.count, device=context.claimed.device)
    looks: list[Look] = [] if settled is None else [settled]
    if stencil is not None:
        looks.append((stencil.chosen, screen(context, stencil)))
    rest = groups[~torch.isin(groups, torch.cat([groups[:0], *(chosen for chosen, _ in looks)]))]
    parts = []
    for chosen in chunks(rest, richardson.DEPTH * context.numbers_per_sample) if len(groups) else (groups,):
        looks.append((chosen, _first_look(context, chosen)))
        parts.append(_judge(context, *joined_looks(looks), history))
        looks.clear()
    if looks:
        parts.append(_judge(context, *joined_looks(looks), history))
    judged = stacked([judged for _, judged in parts])
    if settled is None or len(parts) == 1:  # the groups are in order
        return judged
    return of_rows(judged, torch.cat([chosen for chosen, _ in parts]).argsort())


def judge_column_groups(context: JudgingContext, chosen: Tensor) -> Judged:
    """Judge all entries of column groups (C,): three steps for all, the ladder and excuses for those in doubt."""
    return _judge(context, chosen, _first_look(context, chosen), ConfirmationState())[1]


def _first_look(context: JudgingContext, chosen: Tensor) -> Screened:
    """Return the first look at column groups (C,), at three steps."""
    first_steps = richardson.steps(context.lengths)
    return screen(context, sample_stencil(context.sampled, context.column_groups, chosen, first_steps))


def _judge(context: JudgingContext, chosen: Tensor, first: Screened, history: ConfirmationState) -> Part:
    """Return column groups (C,) with the verdicts after a first look; when time runs out, the rest is UNFINISHED."""
    if not any_set(first.doubt):
        return chosen, first.judged
    judged, remaining = first.judged, first.doubt
    try:
        for stage in _stages(context, chosen, first, history):
            judged, remaining = stage
    except OutOfTime:
        known = judged.error.masked_fill(judged.error.isnan(), 0.0)  # nan, as of samples not taken, is no worst error
        judged = decide(judged, [(remaining, Reason.OUT_OF_TIME)], error=torch.where(remaining, known, judged.error))
    return chosen, _with_propagated_nan(context, chosen, _with_first_look(context, chosen, first, judged))


def _with_first_look(context: JudgingContext, chosen: Tensor, first: Screened, judged: Judged) -> Judged:
    """Return the verdicts with those of the first look where it agreed with a sharp bar and later bars were wider.

    Such entries were in doubt only for estimates as small as their bars, as of zeros that rounding moves.
    """
    largest = largest_resolving_bar(context.claimed[chosen].abs(), of_column_groups(context.allowance, chosen))
    agreed = (first.judged.code == Code.MATCH) & ~first.bends & (first.judged.bar <= largest)
    wider = (judged.reason == Reason.WIDE_BAR) & (judged.bar >= first.judged.bar)
    return replaced(judged, agreed & wider, first.judged)


def _stages(
    context: JudgingContext, chosen: Tensor, first: Screened, history: ConfirmationState
) -> Iterator[tuple[Judged, Tensor]]:
    """Yield the verdicts after each stage, with the mask of entries (C, m) for later ones; the other verdicts stand.

    1. A ladder along one line that moves all columns judges the clear mismatches (`confirmed_along_line`), or those of
       sampled outputs if its samples of all would be too many to hold.
    2. A sample of these is examined, and what is unclear with it (`_with_sample`). The other mismatches that the line
       confirms stand if those of the sample do.
    3. If all of the sample stand, the others need only the difference along a second line (`_confirmed_together`).
    4. If some of the sample stand, the function is wrong, whatever the rest is: only some of it is examined.
    5. Whatever is left is examined.
    """
    nothing = torch.zeros_like(first.doubt)
    clear = first.doubt & ~first.bends & differs_clearly(first.judged)
    sample, unclear = history.sample(clear), first.doubt & ~clear
    rest, limit = clear & ~sample, max(FEW, int(sample.any(dim=1).sum()))
    judged, on_line = copy_of(first.judged), nothing
    if any_set(rest) or (context.column_groups.count > 1 and any_set(sample)):
        all_fit = int(clear.any(dim=0).sum()) * 2 * RUNGS <= HELD
        accused = clear if all_fit else clear & sample.any(dim=0)
        on_line = accused & confirmed_along_line(context, chosen, judged, accused)
        judged = decide(judged, [(on_line, Reason.DIFFERS_IN_SUM)])
    else:
        judged, unclear = _with_larger_steps(context, chosen, judged, unclear, first.bends)
    judged, unclear = _with_sample(context, chosen, judged, sample, unclear, first.bends, on_line, limit)
    stands = ~sample | (judged.code == Code.MISMATCH)
    history.refuted |= not all_set(stands)
    rest &= ~(on_line & stands.all(dim=0) & (sample.any(dim=0) | (not history.refuted)))
    yield judged, rest | unclear
    if not history.refuted:
        together = _confirmed_together(context, chosen, rest, judged)
        judged, rest = decide(judged, [(together, Reason.DIFFERS_IN_SUM)]), rest & ~together
    left = rest | unclear
    yield judged, left
    if any_set(judged.code[sample] == Code.MISMATCH):
        confirmed = nothing if history.refuted else judged.code == Code.MISMATCH
        kept = _of_some_groups(judged, left & ~confirmed.any(dim=0), limit, worst=not history.refuted)
        judged, left = decide(judged, [(left & ~kept, Reason.OTHERS_DIFFER)]), kept
        yield judged, left
    yield _examined(context, chosen, judged, left, nothing), nothing


def _with_sample(
    context: JudgingContext,
    chosen: Tensor,
    judged: Judged,
    sample: Tensor,
    unclear: Tensor,
    bends: Tensor,
    on_line: Tensor,
    limit: int,
) -> tuple[Judged, Tensor]:
    """Return the verdicts after the sample and the unclear entries are examined, and the unclear ones that are not.

    If some mismatches are confirmed on the line, it is enough to examine the worst of the unclear entries, for each
    output without such a mismatch; but all are, if a mismatch of the sample turns out to be none.
    """
    alone, of_line, examined = sample & ~on_line, sample & on_line, unclear
    if any_set(on_line):
        examined = _of_some_groups(judged, unclear & ~on_line.any(dim=0), limit, worst=True)
    judged, others = _examined(context, chosen, judged, alone | examined, of_line), unclear & ~examined
    if any_set(others) and any_set(sample & (judged.code != Code.MISMATCH)):
        judged, others = _with_larger_steps(context, chosen, judged, others, bends)
        judged, others = _examined(context, chosen, judged, others, torch.zeros_like(others)), torch.zeros_like(others)
    return judged, others


def _with_larger_steps(
    context: JudgingContext, chosen: Tensor, judged: Judged, doubt: Tensor, bends: Tensor
) -> tuple[Judged, Tensor]:
    """Return the verdicts, and the mask of entries still in doubt, after larger steps where only bars are too wide.

    Such entries are small beside others, or the forward is rounded inside: noise hides them at the first steps.
    """
    unresolved = doubt & ~bends & ((judged.code == Code.MATCH) | (judged.code == Code.UNDETERMINED))
    rows = unresolved.any(dim=1).nonzero().squeeze(1)
    judged, settled = copy_of(judged), torch.zeros_like(doubt)
    for part in chunks(rows, 2 * HALVINGS * context.numbers_per_sample):
        outputs = unresolved[part].any(dim=0).nonzero().squeeze(1)
        found, agreeing = judge_by_largest_steps(focused(context, outputs), chosen[part])
        settled[place := (part.unsqueeze(1), outputs)] = agreeing
        put(judged, unresolved & settled, place, found)
    return judged, doubt & ~(settled & unresolved)


def _examined(context: JudgingContext, chosen: Tensor, before: Judged, entries: Tensor, confirmed: Tensor) -> Judged:
    """Return the verdicts on `entries` (C, m) by ladder and excuses; those `confirmed` get the excuses of backward."""
    judged = copy_of(before)
    _apply_ladder(context, chosen, entries, judged)
    _ask_excuses(context, chosen, confirmed, judged, (excuse_backward_rounding,))
    _ask_excuses(context, chosen, entries, judged, EXCUSES)
    return judged


def _of_some_groups(judged: Judged, entries: Tensor, most: int, *, worst: bool) -> Tensor:
    """Return the entries (C, m) of random column groups, at most so many; with `worst`, those worst for some output."""
    groups, outputs = (entries.any(dim=dimension).nonzero().squeeze(1) for dimension in (1, 0))
    if worst and len(outputs):
        excess = (judged.error / judged.allowed).nan_to_num(torch.inf).masked_fill(~entries, -1.0)
        groups = torch.unique(excess[:, outputs].argmax(dim=0))
    kept, groups = torch.zeros_like(entries), shuffled(groups)[:most]
    kept[groups] = entries[groups]
    return kept


def _apply_ladder(context: JudgingContext, chosen: Tensor, doubt: Tensor, judged: Judged) -> None:
    """Write the verdicts of the ladder on entries in doubt (C, m) to `judged`."""
    rows = doubt.any(dim=1).nonzero().squeeze(1)
    for part in chunks(rows, 2 * RUNGS * context.numbers_per_sample):
        outputs = doubt[part].any(dim=0).nonzero().squeeze(1)  # in doubt for these column groups
        put(judged, doubt, (part.unsqueeze(1), outputs), judge_by_ladder(focused(context, outputs), chosen[part]))


def _ask_excuses(
    context: JudgingContext, chosen: Tensor, selected: Tensor, judged: Judged, excuses: Sequence[Excuse]
) -> None:
    """Write the verdicts on excused mismatches among the `selected` entries (C, m) to `judged`."""
    for excuse in excuses:
        accused = selected & (judged.code == Code.MISMATCH)
        rows = accused.any(dim=1).nonzero().squeeze(1)
        if len(rows):
            put(judged, accused, rows, excuse(context, chosen[rows], of_rows(judged, rows)))


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
