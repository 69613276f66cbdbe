"""Columns of the Jacobian judged: the cheap pass for all, from closer by where it doubts, then the thorough one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.confirmation import Patience, accusations, seen_twice
from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.doubt import is_noise_limited
from gradverify.core.decide.first_look import First, first_look, look_from_afar
from gradverify.core.decide.ladder import DEPTH, judge_by_ladder
from gradverify.core.decide.verdict import Code, Judged, copy_of, of_rows, put, span, stacked
from gradverify.core.estimate import richardson
from gradverify.core.estimate.column_groups import owned
from gradverify.core.estimate.samples import NOISE_FACTOR, Steps
from gradverify.core.estimate.stencil import Stencil, sample_stencil
from gradverify.core.estimate.tableau import halving_steps
from gradverify.core.model.magnitudes import any_set
from gradverify.core.model.memory import chunks

_TOGETHER = 1 << 13  # entries of as many moves and outputs as are in doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Moves that have been judged."""

    chosen: Tensor  # (k,) in order
    judged: Judged  # (k, m)


def is_complete(context: JudgingContext, known: Known | None) -> bool:
    """Tell whether all moves are known."""
    return known is not None and len(known.chosen) == context.column_groups.count


def judge_all(
    context: JudgingContext, stencil: Stencil | None = None, known: Known | None = None
) -> Iterator[tuple[Tensor, Judged]]:
    """Yield moves and the verdicts on their entries, a few moves at a time and in order, until all are judged.

    `walk` is that of all moves by the first steps, where they have been taken.
    """
    patience = Patience()
    if stencil is not None:
        yield stencil.chosen, _judge(context, stencil, patience)
        return
    every = torch.arange(context.column_groups.count, device=context.sampled.point.device)
    if known is not None and is_complete(context, known):
        yield every, known.judged
        return
    for chosen in chunks(every, richardson.DEPTH * context.width):
        yield (
            chosen,
            judge_moves(context, chosen, patience) if known is None else _beside(context, chosen, patience, known),
        )


def judge_moves(context: JudgingContext, chosen: Tensor, patience: Patience) -> Judged:
    """Judge all entries of the moves (C,): the cheap pass for all, the thorough one for those in doubt."""
    return _judge(
        context,
        sample_stencil(context.sampled, context.column_groups, chosen, richardson.steps(context.lengths)),
        patience,
    )


def _beside(context: JudgingContext, chosen: Tensor, patience: Patience, known: Known) -> Judged:
    """Judge the moves that are not known, and return the verdicts on all of them."""
    mine = torch.isin(known.chosen, chosen)
    if not any_set(mine):
        return judge_moves(context, chosen, patience)
    rest = chosen[~torch.isin(chosen, known.chosen)]
    told = of_rows(known.judged, mine)
    if not len(rest):
        return told
    order = torch.cat([known.chosen[mine], rest]).argsort()
    return of_rows(stacked([told, judge_moves(context, rest, patience)]), order)


def _judge(context: JudgingContext, stencil: Stencil, patience: Patience) -> Judged:
    first, chosen = first_look(context, stencil), stencil.chosen
    if not any_set(first.doubt):
        return first.judged
    judged = copy_of(first.judged)
    left = _left_by_other_steps(context, chosen, first, judged)
    accused = [left & kind for kind in accusations(context, first)]
    early = [kind.first(mine) for kind, mine in zip(patience.kinds, accused, strict=True)]
    later = [mine & ~climbing for mine, climbing in zip(accused, early, strict=True)]
    unclear = left & ~torch.stack(accused).any(dim=0)
    _climb_all(context, chosen, [unclear, *early], judged)
    spared = torch.zeros_like(left)
    for kind, climbed, mine in zip(patience.kinds, early, later, strict=True):
        kind.learn(climbed, judged)
        if kind.lasts():
            spared |= mine
    _climb(context, chosen, torch.stack(later).any(dim=0) & ~seen_twice(context, chosen, first, spared), judged)
    return judged


def _climb_all(context: JudgingContext, chosen: Tensor, parts: list[Tensor], judged: Judged) -> None:
    """Climb for some sets of entries, together where they are few: what moves beside an entry tells more about it."""
    whole = torch.stack(parts).any(dim=0)
    rows, outputs = span(whole)
    for part in [whole] if len(rows) * len(outputs) <= _TOGETHER else parts:
        _climb(context, chosen, part, judged)


def _climb(context: JudgingContext, chosen: Tensor, doubt: Tensor, judged: Judged) -> None:
    """Put in their place the verdicts of the thorough pass on entries in doubt (C, m)."""
    rows = doubt.any(dim=1).nonzero().squeeze(1)
    for some in chunks(rows, 2 * DEPTH * context.width):
        outputs = doubt[some].any(dim=0).nonzero().squeeze(1)  # those that are in doubt for these moves
        put(judged, doubt, some, outputs, judge_by_ladder(focused(context, outputs), chosen[some]))


def _left_by_other_steps(context: JudgingContext, chosen: Tensor, first: First, judged: Judged) -> Tensor:
    """Return what stays in doubt after another look; the verdicts on the rest are put in their place.

    Most functions that leave a doubt vary, or have a kink, within the first look's steps: they are seen from closer by.
    Of the others most were drowned by rounding, and if they hardly bend they are seen from farther off.
    """
    rows, outputs = span(first.doubt)
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    near, some = focused(context, outputs), chosen[rows]
    doubt, bends, code = first.doubt[place], first.bends[place], first.judged.code[place]
    closer, farther = richardson.closer_steps(context.lengths), halving_steps(context.lengths)
    loud = is_noise_limited(_noise_of(near, some, closer), near.claimed[some].abs())
    blurred = doubt & (bends | (code != Code.MISMATCH)) & ~loud
    faint = doubt & loud & ~bends & (code == Code.MATCH)
    left = first.doubt
    for look, steps, unsure in ((first_look, closer, blurred), (look_from_afar, farther, faint)):
        if any_set(unsure):
            own, seen = span(unsure)
            nearest = focused(near, seen)
            again = look(nearest, sample_stencil(nearest.sampled, nearest.column_groups, some[own], steps))
            clear = ~again.doubt
            if look is look_from_afar:  # finer steps have more noise than is left here
                best = again.judged.bar <= _noise_of(nearest, some[own], steps)
                clear |= best & (again.judged.code == Code.MATCH) & ~again.bends
            settled = torch.zeros_like(left)
            settled[rows[own].unsqueeze(1), outputs[seen]] = unsure[own.unsqueeze(1), seen] & clear
            put(judged, settled, rows[own], outputs[seen], again.judged)
            left = left & ~settled
    return left


def _noise_of(context: JudgingContext, chosen: Tensor, steps: Steps) -> Tensor:
    """Return what noise may change in the differences at the finest of these steps, (C, m)."""
    return NOISE_FACTOR * context.noise.level / owned(context.column_groups, chosen, steps.base * steps.factors[-1])
