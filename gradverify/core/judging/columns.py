"""Columns of the Jacobian judged: the cheap pass for all, from closer by where it doubts, then the thorough one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.function.flags import any_set
from gradverify.core.function.portion import chunks
from gradverify.core.judging.bench import Bench, focused
from gradverify.core.judging.cheap import First, first_look, look_from_afar
from gradverify.core.judging.climb import DEPTH, thorough
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.judging.doubt import hopeless
from gradverify.core.judging.patience import Patience, accusations, seen_twice
from gradverify.core.judging.replaced import copy_of, of_rows, put, span, stacked
from gradverify.core.numeric import richardson
from gradverify.core.numeric.ladder import halving_steps
from gradverify.core.numeric.moves import owned
from gradverify.core.numeric.samples import NOISE_FACTOR, Steps
from gradverify.core.numeric.walk import Walk, walked

_TOGETHER = 1 << 13  # entries of as many moves and outputs as are in doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Moves that have been judged."""

    moves: Tensor  # (k,) in order
    judged: Judged  # (k, m)


def is_complete(at: Bench, known: Known | None) -> bool:
    """Tell whether all moves are known."""
    return known is not None and len(known.moves) == at.moves.count


def judge_all(at: Bench, walk: Walk | None = None, known: Known | None = None) -> Iterator[tuple[Tensor, Judged]]:
    """Yield moves and the verdicts on their entries, a few moves at a time and in order, until all are judged.

    `walk` is that of all moves by the first steps, where they have been taken.
    """
    patience = Patience()
    if walk is not None:
        yield walk.chosen, _judge(at, walk, patience)
        return
    every = torch.arange(at.moves.count, device=at.sampled.point.device)
    if known is not None and is_complete(at, known):
        yield every, known.judged
        return
    for chosen in chunks(every, richardson.DEPTH * at.width):
        yield chosen, judge_moves(at, chosen, patience) if known is None else _beside(at, chosen, patience, known)


def judge_moves(at: Bench, chosen: Tensor, patience: Patience) -> Judged:
    """Judge all entries of the moves (C,): the cheap pass for all, the thorough one for those in doubt."""
    return _judge(at, walked(at.sampled, at.moves, chosen, richardson.steps(at.lengths)), patience)


def _beside(at: Bench, chosen: Tensor, patience: Patience, known: Known) -> Judged:
    """Judge the moves that are not known, and return the verdicts on all of them."""
    mine = torch.isin(known.moves, chosen)
    if not any_set(mine):
        return judge_moves(at, chosen, patience)
    rest = chosen[~torch.isin(chosen, known.moves)]
    told = of_rows(known.judged, mine)
    if not len(rest):
        return told
    order = torch.cat([known.moves[mine], rest]).argsort()
    return of_rows(stacked([told, judge_moves(at, rest, patience)]), order)


def _judge(at: Bench, walk: Walk, patience: Patience) -> Judged:
    first, chosen = first_look(at, walk), walk.chosen
    if not any_set(first.doubt):
        return first.judged
    judged = copy_of(first.judged)
    left = _left_by_other_steps(at, chosen, first, judged)
    accused = [left & kind for kind in accusations(at, first)]
    early = [kind.first(mine) for kind, mine in zip(patience.kinds, accused, strict=True)]
    later = [mine & ~climbing for mine, climbing in zip(accused, early, strict=True)]
    unclear = left & ~torch.stack(accused).any(dim=0)
    _climb_all(at, chosen, [unclear, *early], judged)
    spared = torch.zeros_like(left)
    for kind, climbed, mine in zip(patience.kinds, early, later, strict=True):
        kind.learn(climbed, judged)
        if kind.lasts():
            spared |= mine
    _climb(at, chosen, torch.stack(later).any(dim=0) & ~seen_twice(at, chosen, first, spared), judged)
    return judged


def _climb_all(at: Bench, chosen: Tensor, parts: list[Tensor], judged: Judged) -> None:
    """Climb for some sets of entries, together where they are few: what moves beside an entry tells more about it."""
    whole = torch.stack(parts).any(dim=0)
    rows, outputs = span(whole)
    for part in [whole] if len(rows) * len(outputs) <= _TOGETHER else parts:
        _climb(at, chosen, part, judged)


def _climb(at: Bench, chosen: Tensor, doubt: Tensor, judged: Judged) -> None:
    """Put in their place the verdicts of the thorough pass on entries in doubt (C, m)."""
    rows = doubt.any(dim=1).nonzero().squeeze(1)
    for some in chunks(rows, 2 * DEPTH * at.width):
        outputs = doubt[some].any(dim=0).nonzero().squeeze(1)  # those that are in doubt for these moves
        put(judged, doubt, some, outputs, thorough(focused(at, outputs), chosen[some]))


def _left_by_other_steps(at: Bench, chosen: Tensor, first: First, judged: Judged) -> Tensor:
    """Return what stays in doubt after another look; the verdicts on the rest are put in their place.

    Most functions that leave a doubt vary, or have a kink, within the first look's steps: they are seen from closer by.
    Of the others most were drowned by rounding, and if they hardly bend they are seen from farther off.
    """
    rows, outputs = span(first.doubt)
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    near, some = focused(at, outputs), chosen[rows]
    doubt, bends, code = first.doubt[place], first.bends[place], first.judged.code[place]
    closer, farther = richardson.closer_steps(at.lengths), halving_steps(at.lengths)
    loud = hopeless(_noise_of(near, some, closer), near.claimed[some].abs())
    blurred = doubt & (bends | (code != Code.MISMATCH)) & ~loud
    faint = doubt & loud & ~bends & (code == Code.MATCH)
    left = first.doubt
    for look, steps, unsure in ((first_look, closer, blurred), (look_from_afar, farther, faint)):
        if any_set(unsure):
            own, seen = span(unsure)
            nearest = focused(near, seen)
            again = look(nearest, walked(nearest.sampled, nearest.moves, some[own], steps))
            clear = ~again.doubt
            if look is look_from_afar:  # finer steps have more noise than is left here
                best = again.judged.bar <= _noise_of(nearest, some[own], steps)
                clear |= best & (again.judged.code == Code.MATCH) & ~again.bends
            settled = torch.zeros_like(left)
            settled[rows[own].unsqueeze(1), outputs[seen]] = unsure[own.unsqueeze(1), seen] & clear
            put(judged, settled, rows[own], outputs[seen], again.judged)
            left = left & ~settled
    return left


def _noise_of(at: Bench, chosen: Tensor, steps: Steps) -> Tensor:
    """Return what noise may change in the differences at the finest of these steps, (C, m)."""
    return NOISE_FACTOR * at.noise.level / owned(at.moves, chosen, steps.base * steps.factors[-1])
