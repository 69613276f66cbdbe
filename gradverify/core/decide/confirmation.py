"""Clear accusations of one kind: a sample is confirmed by the ladder, and stands for the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.first_look import First, first_look
from gradverify.core.decide.verdict import Code, Judged, span
from gradverify.core.estimate import richardson
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.estimate.stencil import sample_stencil
from gradverify.core.model.magnitudes import any_set

_MOVES = 64  # moves with clear accusations that climb, half of those left at a time
_ENTRIES = 1024  # clear accusations that climb at a time
_CLEARLY = 2.0  # times what is allowed, ten error bars of it, from which on an error is clear
_SIZES = (1e-8, 1e-6, 1e-4, 1e-2)  # of errors, beside the largest entry, where another kind begins
_NEARER = 0.25  # of its distance from the claim: how far the derivative may be from what it was


class Kind:
    """What a comparison has seen of one kind of accusations, those of them that climbed."""

    def __init__(self) -> None:
        self._moves = _MOVES
        self._deceived = False

    def first(self, accused: Tensor) -> Tensor:
        """Return those of the accusations (C, m) that climb in any case: of some moves the same outputs."""
        rows = _some(accused.any(dim=1).nonzero().squeeze(1), max(1, self._moves // 2))
        outputs = _some(accused[rows].any(dim=0).nonzero().squeeze(1), _ENTRIES // max(1, len(rows)))
        early, place = torch.zeros_like(accused), (rows.unsqueeze(1), outputs)
        early[place] = accused[place]
        return early

    def learn(self, climbed: Tensor, judged: Judged) -> None:
        """Learn what has become of accusations (C, m) that have climbed."""
        self._moves -= int(climbed.any(dim=1).sum())
        self._deceived |= any_set(judged.code[climbed] != Code.MISMATCH)

    def lasts(self) -> bool:
        """Tell whether none of them was taken back."""
        return not self._deceived


class Patience:
    """What a comparison has seen of each kind of accusations, see `accusations`."""

    def __init__(self) -> None:
        self.kinds = tuple(Kind() for _ in range(len(_SIZES) + 1))


def accusations(context: JudgingContext, first: First) -> list[Tensor]:
    """Return which entries of these moves are wrong by far, on a line that does not bend; (C, m) each.

    Of each kind are those of one size beside the largest entry of all: what a climb takes back, as rounding inside or a
    slight kink, is off by less than what is wrong throughout.
    """
    judged = first.judged
    clear = (judged.code == Code.MISMATCH) & (judged.error > _CLEARLY * judged.allowed) & ~first.bends
    size = judged.error / context.allowance.largest
    kind = torch.bucketize(size, torch.tensor(_SIZES, dtype=size.dtype, device=size.device))
    return [clear & (kind == number) for number in range(len(_SIZES) + 1)]


def seen_twice(context: JudgingContext, chosen: Tensor, first: First, accused: Tensor) -> Tensor:
    """Tell for which accusations (C, m) the derivative is the same from closer by, and as far from the claim."""
    if not any_set(accused):
        return accused
    rows, outputs = span(accused)
    near, place = focused(context, outputs), (rows.unsqueeze(1), outputs.unsqueeze(0))
    closer = richardson.closer_steps(context.lengths)
    again = first_look(near, sample_stencil(near.sampled, near.column_groups, chosen[rows], closer))
    apart = (again.judged.numeric - first.judged.numeric[place]).abs()
    same = apart <= BAR_FACTOR * (again.judged.bar + first.judged.bar[place])
    same &= apart <= _NEARER * first.judged.error[place]
    twice = torch.zeros_like(accused)
    twice[place] = accused[place] & same & ~again.bends
    return twice


def _some(places: Tensor, most: int) -> Tensor:
    """Return so many of the places, in order, drawn at random since what is wrong may repeat itself, or all of them."""
    if len(places) <= most:
        return places
    drawn = torch.randperm(len(places), generator=torch.Generator().manual_seed(most))[:most]
    return places[drawn.sort().values.to(places.device)]
