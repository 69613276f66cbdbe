"""How finely backward's answers resolve: listened for as the forward's noise is, but in what backward says.

A claim such as sigmoid(x) - 1 has lost its last digits where x is large, and no repetition shows it: all answers close
by have lost the same. Along a line through the point they move in stairs. An accusation that is no larger than what
rounding of numbers around 1, or around the largest claim, may leave is held against the height of these stairs; one of
a zero, of which nothing is left that could move, against the rounding of the answers around the point.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.function.analytic import Reverse, rows
from gradverify.core.function.ecnoise import PLACES, noise_in
from gradverify.core.function.noise import SAFETY, SPACINGS, lasting_in
from gradverify.core.function.sampler import places as standing
from gradverify.core.function.scale import own_or_shared
from gradverify.core.judging.bench import Bench, of_moves
from gradverify.core.judging.compare import Code, Judged, is_resolved
from gradverify.core.judging.spread import nearby
from gradverify.core.numeric.samples import BAR_FACTOR
from gradverify.errors import EvaluationError

_UNITS = 128.0  # of rounding, that a claim may be off by
_MOST = 2.0**-10  # but not by more than this, in whatever precision
_NUMBERS = 1_000_000  # answers held at a time, at most
_ROWS = 16  # rows listened to, at most


def excuse_grain(at: Bench, backward: Reverse, chosen: Tensor, judged: Judged) -> Judged:
    """Take back accusations that are within what backward's answers resolve."""
    claimed = at.claimed[chosen]
    largest = float(at.claimed.abs().nan_to_num(0.0, 0.0, 0.0).max()) if at.claimed.numel() else 0.0
    small = (judged.code == Code.MISMATCH) & (judged.error <= min(_MOST, _UNITS * at.sampled.eps) * max(1.0, largest))
    places = small.any(dim=0).nonzero().squeeze(1)[: max(1, min(_ROWS, _NUMBERS // max(1, at.claimed.shape[0])))]
    if not len(places):
        return judged
    heard, around = (torch.zeros_like(judged.error) for _ in range(2))
    owner = at.moves.owner[chosen][:, places].clamp(min=0)
    for found, into in zip(_grain(at, backward, places), (heard, around), strict=True):
        into[:, places] = found.gather(1, owner.T).T
    unit = at.sampled.eps * around.clamp(max=1.0)
    lost = claimed == 0  # no digit is left, and what stands still moves in no stairs
    allowed = judged.allowed + torch.where(lost, _UNITS * unit, BAR_FACTOR * heard)
    excused = small & (judged.error <= allowed)
    allowance = of_moves(at.allowance, chosen)
    known = is_resolved(heard, torch.maximum(claimed.abs(), around), allowance)
    code = judged.code.masked_fill(excused, Code.MATCH).masked_fill(excused & ~known, Code.UNDETERMINED)
    return replace(judged, allowed=torch.where(excused, allowed, judged.allowed), code=code)


def _grain(at: Bench, backward: Reverse, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return how finely the rows of these outputs resolve, and the largest answers around the point; both (k, n)."""
    asked = standing(at.sampled, places).tolist()
    heard, around = [], []
    for side in (own_or_shared(at.lengths), -own_or_shared(at.lengths)):
        found = []
        for spacing in SPACINGS:
            answers = torch.stack([_answers(at, backward, asked, place * spacing * side) for place in PLACES])
            found.append(noise_in(answers))
            around.append(answers.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0))
        heard.append(lasting_in(torch.stack(found)))
    shape = (len(asked), at.sampled.point.numel())
    return SAFETY * torch.stack(heard).amax(dim=0).view(shape), torch.stack(around).amax(dim=0).view(shape)


def _answers(at: Bench, backward: Reverse, asked: list[int], displacement: Tensor) -> Tensor:
    """Return the rows of these outputs at a point close by, one after the other; what raises is no number."""
    try:
        return torch.cat(list(rows(nearby(backward, at.sampled.point + displacement), asked)))
    except EvaluationError:
        return torch.full((len(asked) * len(displacement),), torch.nan, dtype=torch.float64, device=displacement.device)
