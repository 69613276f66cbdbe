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

from gradverify.core.excuses.sharing import Questions, answered, questions, told
from gradverify.core.excuses.spread import nearby
from gradverify.core.excuses.trial import Trial
from gradverify.core.function.analytic import Reverse
from gradverify.core.function.ecnoise import PLACES, noise_in
from gradverify.core.function.flags import any_set
from gradverify.core.function.lasting import SPACINGS, lasting_in
from gradverify.core.function.noise import SAFETY
from gradverify.core.function.scale import own_or_shared
from gradverify.core.judging.bench import Bench, of_moves
from gradverify.core.judging.compare import Code, Judged, is_resolved
from gradverify.core.numeric.samples import BAR_FACTOR
from gradverify.errors import EvaluationError

_UNITS = 128.0  # of rounding, that a claim may be off by
_DIGITS = 2.0  # and one of which nothing but such digits is left
_MOST = 2.0**-10  # but not by more than this, or than one unit, in whatever precision
_NUMBERS = 1_000_000  # answers held at a time, at most
_QUESTIONS = 16  # asked at every point, at most: a row each, or several rows that no input is common to


def excuse_grain(trial: Trial, judged: Judged) -> Judged:
    """Take back accusations that are within what backward's answers resolve."""
    at, backward, chosen = trial.at, trial.backward, trial.chosen
    claimed = at.claimed[chosen]
    small = (judged.code == Code.MISMATCH) & (judged.error <= smallness(at))
    if not any_set(small):
        return judged
    asked = questions(at, backward, chosen, small, min(_QUESTIONS, _NUMBERS // max(1, at.sampled.point.numel())))
    heard, around = (told(found, asked, at.moves.owner[chosen]) for found in _grain(at, backward, asked))
    unit = at.sampled.eps * around.clamp(max=1.0)
    lost = claimed == 0  # no digit is left, and what stands still moves in no stairs
    grain = torch.where(_only_last_digits(claimed, unit), _DIGITS * unit, 0.0)
    allowed = judged.allowed + torch.where(lost, _UNITS * unit, torch.maximum(BAR_FACTOR * heard, grain))
    excused = small & (judged.error <= allowed)
    allowance = of_moves(at.allowance, chosen)
    known = is_resolved(heard, torch.maximum(claimed.abs(), around), allowance)
    code = judged.code.masked_fill(excused, Code.MATCH).masked_fill(excused & ~known, Code.UNDETERMINED)
    if any_set(excused):  # the rows that there was no time to listen to may be explained as well
        unheard = torch.zeros_like(small[0])
        unheard[asked.unasked] = True
        code[small & unheard] = Code.UNDETERMINED
    return replace(judged, allowed=torch.where(excused, allowed, judged.allowed), code=code)


def smallness(at: Bench) -> float:
    """Return what rounding of numbers around 1, or around the largest claim, may leave."""
    largest = float(at.claimed.abs().nan_to_num(0.0, 0.0, 0.0).max()) if at.claimed.numel() else 0.0
    return min(max(_MOST, at.sampled.eps), _UNITS * at.sampled.eps) * max(1.0, largest)


def _only_last_digits(claimed: Tensor, unit: Tensor) -> Tensor:
    """Tell which claims are whole multiples of the last digit of numbers around, whose rounding is `unit`; all (C, m).

    On the last stairs before zero there may be too few of them to be heard.
    """
    _, power = torch.frexp(unit / 2)
    digit = torch.ldexp(torch.full_like(unit, 0.5), power)  # the power of two at or below half a unit
    return (digit > 0) & (claimed.remainder(digit.clamp(min=torch.finfo(torch.float64).tiny)) == 0)


def _grain(at: Bench, backward: Reverse, asked: Questions) -> tuple[Tensor, Tensor]:
    """Return how finely the answers to these questions resolve, and the largest ones around the point; both (K, n)."""
    heard, around = [], []
    for side in (own_or_shared(at.lengths), -own_or_shared(at.lengths)):
        found = []
        for spacing in SPACINGS:
            given = torch.stack([_answers(at, backward, asked, place * spacing * side) for place in PLACES])
            found.append(noise_in(given))
            around.append(given.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0))
        heard.append(lasting_in(torch.stack(found)))
    shape = (len(asked.cotangents), at.sampled.point.numel())
    return SAFETY * torch.stack(heard).amax(dim=0).view(shape), torch.stack(around).amax(dim=0).view(shape)


def _answers(at: Bench, backward: Reverse, asked: Questions, displacement: Tensor) -> Tensor:
    """Return the answers at a point close by, one after the other; what raises is no number."""
    try:
        return answered(nearby(backward, at.sampled.point + displacement), asked).reshape(-1)
    except EvaluationError:
        shape = (len(asked.cotangents) * len(displacement),)
        return torch.full(shape, torch.nan, dtype=torch.float64, device=displacement.device)
