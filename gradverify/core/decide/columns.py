"""Verdicts on columns of the Jacobian: three steps for all entries, other steps for those in doubt, then the ladder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.compare import is_noise_limited
from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.ladder import DEPTH, judge_by_ladder
from gradverify.core.decide.screen import Screened, screen
from gradverify.core.decide.verdict import Code, Judged, copy_of, of_rows, put, span, stacked
from gradverify.core.estimate import richardson
from gradverify.core.estimate.column_groups import value_of_column
from gradverify.core.estimate.samples import BAR_FACTOR, NOISE_FACTOR
from gradverify.core.estimate.stencil import Stencil, sample_stencil
from gradverify.core.model.magnitudes import any_set
from gradverify.core.model.memory import chunks
from gradverify.core.tuning import CLEARLY_LESS

_ONE_LADDER = 1 << 13  # (column groups) x (outputs) up to which all sets of entries are judged by one ladder
_COLUMN_GROUPS = 64  # column groups with clear mismatches that the ladder judges; half of the rest at a time
_ENTRIES = 1024  # clear mismatches that the ladder judges at a time
_CLEAR = 2.0  # times the allowed error: a larger one is clear


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownVerdicts:
    """Column groups that have been judged."""

    chosen: Tensor  # (k,) column groups, ascending
    judged: Judged  # (k, m)


class ConfirmationState:
    """State of the clear mismatches: column groups that the ladder may still sample, and whether it confirmed all."""

    def __init__(self) -> None:
        self._groups_left = _COLUMN_GROUPS
        self._refuted = False

    def sample(self, accused: Tensor) -> Tensor:
        """Return the mask of the mismatches (C, m) for the ladder to judge: the same outputs of some column groups."""
        rows = _random_subset(accused.any(dim=1).nonzero().squeeze(1), max(1, self._groups_left // 2))
        outputs = _random_subset(accused[rows].any(dim=0).nonzero().squeeze(1), _ENTRIES // max(1, len(rows)))
        sampled, place = torch.zeros_like(accused), (rows.unsqueeze(1), outputs)
        sampled[place] = accused[place]
        return sampled

    def record(self, sampled: Tensor, judged: Judged) -> bool:
        """Record the verdicts of the ladder on mismatches (C, m); True if it has confirmed all so far."""
        self._groups_left -= int(sampled.any(dim=1).sum())
        self._refuted |= any_set(judged.code[sampled] != Code.MISMATCH)
        return not self._refuted


def is_complete(context: JudgingContext, known: KnownVerdicts | None) -> bool:
    """True if all column groups have been judged."""
    return known is not None and len(known.chosen) == context.column_groups.count


def judge_all(
    context: JudgingContext, stencil: Stencil | None = None, known: KnownVerdicts | None = None
) -> Iterator[tuple[Tensor, Judged]]:
    """Yield column groups (C,) and the verdicts on their entries (C, m), in order, until all groups are judged.

    `stencil` holds samples of all column groups at the first steps, if they exist; `known` are earlier verdicts.
    """
    history = ConfirmationState()
    if stencil is not None:
        yield stencil.chosen, _judge(context, stencil, history)
        return
    all_groups = torch.arange(context.column_groups.count, device=context.sampled.point.device)
    if known is not None and is_complete(context, known):
        yield all_groups, known.judged
        return
    for chosen in chunks(all_groups, richardson.DEPTH * context.numbers_per_sample):
        yield (
            chosen,
            judge_column_groups(context, chosen, history)
            if known is None
            else _judge_unknown(context, chosen, history, known),
        )


def judge_column_groups(context: JudgingContext, chosen: Tensor, history: ConfirmationState) -> Judged:
    """Judge all entries of column groups (C,): three steps for all, the ladder for those in doubt."""
    return _judge(
        context,
        sample_stencil(context.sampled, context.column_groups, chosen, richardson.steps(context.lengths)),
        history,
    )


def _judge_unknown(context: JudgingContext, chosen: Tensor, history: ConfirmationState, known: KnownVerdicts) -> Judged:
    """Judge the column groups that are not known yet, and return the verdicts on all of `chosen`."""
    is_chosen = torch.isin(known.chosen, chosen)
    if not any_set(is_chosen):
        return judge_column_groups(context, chosen, history)
    rest = chosen[~torch.isin(chosen, known.chosen)]
    judged = of_rows(known.judged, is_chosen)
    if not len(rest):
        return judged
    order = torch.cat([known.chosen[is_chosen], rest]).argsort()
    return of_rows(stacked([judged, judge_column_groups(context, rest, history)]), order)


def _judge(context: JudgingContext, stencil: Stencil, history: ConfirmationState) -> Judged:
    """Return the verdicts on the column groups of a stencil.

    Of many clear mismatches, the ladder judges a sample. If it confirms all of these, the others only need the
    confirmation of smaller steps.
    """
    first, chosen = screen(context, stencil), stencil.chosen
    if not any_set(first.doubt):
        return first.judged
    judged = copy_of(first.judged)
    in_doubt = _left_by_closer_steps(context, chosen, first, judged)
    clear = in_doubt & (first.judged.code == Code.MISMATCH) & ~first.bends
    clear &= first.judged.error > _CLEAR * first.judged.allowed
    sampled = history.sample(clear)
    _judge_sets_by_ladder(context, chosen, [in_doubt & ~clear, sampled], judged)
    remaining = clear & ~sampled
    if history.record(sampled, judged):
        remaining &= ~_confirmed_by_smaller_steps(context, chosen, first, remaining)
    _apply_ladder(context, chosen, remaining, judged)
    return judged


def _judge_sets_by_ladder(context: JudgingContext, chosen: Tensor, parts: list[Tensor], judged: Judged) -> None:
    """Judge sets of entries by the ladder; together if they are few, since neighbouring entries help to judge one."""
    union = torch.stack(parts).any(dim=0)
    rows, outputs = span(union)
    for part in [union] if len(rows) * len(outputs) <= _ONE_LADDER else parts:
        _apply_ladder(context, chosen, part, judged)


def _apply_ladder(context: JudgingContext, chosen: Tensor, doubt: Tensor, judged: Judged) -> None:
    """Write the verdicts of the ladder on entries in doubt (C, m) to `judged`."""
    rows = doubt.any(dim=1).nonzero().squeeze(1)
    for part in chunks(rows, 2 * DEPTH * context.numbers_per_sample):
        outputs = doubt[part].any(dim=0).nonzero().squeeze(1)  # in doubt for these column groups
        put(judged, doubt, part, outputs, judge_by_ladder(focused(context, outputs), chosen[part]))


def _left_by_closer_steps(context: JudgingContext, chosen: Tensor, first: Screened, judged: Judged) -> Tensor:
    """Return the mask of entries still in doubt at closer steps, (C, m); write the verdicts on the rest to `judged`.

    Most functions in doubt vary, or have a kink, within the first steps. Entries whose noise would dominate the closer
    steps are left to the ladder, as are mismatches of a function that does not bend.
    """
    rows, outputs = span(first.doubt)
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    near, near_chosen, closer = focused(context, outputs), chosen[rows], richardson.closer_steps(context.lengths)
    finest = value_of_column(near.column_groups, near_chosen, closer.base * closer.factors[-1])
    noisy = is_noise_limited(NOISE_FACTOR * near.noise.level / finest, near.claimed[near_chosen].abs())
    selected = first.doubt[place] & (first.bends[place] | (first.judged.code[place] != Code.MISMATCH)) & ~noisy
    if not any_set(selected):
        return first.doubt
    picked, picked_outputs = span(selected)
    nearest = focused(near, picked_outputs)
    again = screen(nearest, sample_stencil(nearest.sampled, nearest.column_groups, near_chosen[picked], closer))
    settled = torch.zeros_like(first.doubt)
    settled[rows[picked].unsqueeze(1), outputs[picked_outputs]] = (
        selected[picked.unsqueeze(1), picked_outputs] & ~again.doubt
    )
    put(judged, settled, rows[picked], outputs[picked_outputs], again.judged)
    return first.doubt & ~settled


def _confirmed_by_smaller_steps(context: JudgingContext, chosen: Tensor, first: Screened, accused: Tensor) -> Tensor:
    """Mask of the mismatches (C, m) whose numeric entry is the same at smaller steps."""
    if not any_set(accused):
        return accused
    rows, outputs = span(accused)
    selected, place = focused(context, outputs), (rows.unsqueeze(1), outputs.unsqueeze(0))
    closer = richardson.closer_steps(context.lengths)
    again = screen(selected, sample_stencil(selected.sampled, selected.column_groups, chosen[rows], closer))
    change = (again.judged.numeric - first.judged.numeric[place]).abs()
    same = change <= BAR_FACTOR * (again.judged.bar + first.judged.bar[place])
    same &= change <= CLEARLY_LESS * first.judged.error[place]
    confirmed = torch.zeros_like(accused)
    confirmed[place] = accused[place] & same & ~again.bends
    return confirmed


def _random_subset(indices: Tensor, limit: int) -> Tensor:
    """Return `limit` random ones of the indices, in order; all if there are no more. Errors may be periodic."""
    if len(indices) <= limit:
        return indices
    drawn = torch.randperm(len(indices), generator=torch.Generator().manual_seed(limit))[:limit]
    return indices[drawn.sort().values.to(indices.device)]
