"""Which clear accusations climb the ladder: all of them, until it has confirmed enough.

A gradient that is wrong throughout makes thousands of accusations that nothing will take back, and a ladder for each is
dear. Once so many have climbed that one for each would cost more than all else, and not a single one of them was taken
back, the others need only be seen twice: at the first steps and at closer ones, with the same derivative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.flags import any_set
from gradverify.core.judging.bench import Bench, focused, of_moves
from gradverify.core.judging.cheap import First, first_look
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.judging.replaced import span
from gradverify.core.numeric import richardson
from gradverify.core.numeric.samples import BAR_FACTOR
from gradverify.core.numeric.walk import walked

_MOVES = 32  # moves with clear accusations that climb
_ENTRIES = 20_000  # clear accusations that climb
_CLEARLY = 30.0  # times what is allowed, from which on an error is clear
_FAINT = 1e-8  # of the largest in its row or column: what rounding inside may have made


class Patience:
    """What a comparison has seen of clear accusations that climbed."""

    def __init__(self) -> None:
        self._moves, self._entries = _MOVES, _ENTRIES
        self._deceived = False

    def first(self, clear: Tensor) -> Tensor:
        """Return those of the clear accusations (C, m) that climb in any case."""
        moves = clear.any(dim=1).cumsum(dim=0) <= self._moves
        place = clear.reshape(-1).cumsum(dim=0).view_as(clear)
        return clear & moves.unsqueeze(1) & (place <= self._entries)

    def learn(self, climbed: Tensor, judged: Judged) -> None:
        """Learn what has become of clear accusations (C, m) that have climbed."""
        self._moves -= int(climbed.any(dim=1).sum())
        self._entries -= int(climbed.sum())
        self._deceived |= any_set(judged.code[climbed] != Code.MISMATCH)

    def spared(self, at: Bench, chosen: Tensor, first: First, clear: Tensor) -> Tensor:
        """Return those of further clear accusations (C, m) that need not climb."""
        none = torch.zeros_like(clear)
        return none if self._deceived or not any_set(clear) else _seen_twice(at, chosen, first, clear)


def clear_accusations(at: Bench, chosen: Tensor, first: First) -> Tensor:
    """Tell which entries of these moves are wrong by far and no mere rounding, on a line that does not bend; (C, m)."""
    error = first.judged.error
    clear = (first.judged.code == Code.MISMATCH) & (error > _CLEARLY * first.judged.allowed) & ~first.bends
    return clear & (error > _FAINT * of_moves(at.allowance, chosen).beside)


def _seen_twice(at: Bench, chosen: Tensor, first: First, clear: Tensor) -> Tensor:
    """Tell which clear accusations are as clear from closer by, where the derivative is the same."""
    rows, outputs = span(clear)
    near, place = focused(at, outputs), (rows.unsqueeze(1), outputs.unsqueeze(0))
    closer = richardson.closer_steps(at.lengths)
    again = first_look(near, walked(near.sampled, near.moves, chosen[rows], closer))
    apart = (again.judged.numeric - first.judged.numeric[place]).abs()
    same = apart <= BAR_FACTOR * (again.judged.bar + first.judged.bar[place])
    twice = torch.zeros_like(clear)
    twice[place] = clear[place] & same & clear_accusations(near, chosen[rows], again)
    return twice
