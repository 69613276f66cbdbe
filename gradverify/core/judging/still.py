"""Outputs that stand still over stretches too short to say anything.

Where log(cosh x) is computed at 1e-8, cosh x is 1 to the last digit, and so it stays until x has grown by half. A
derivative of 1e-8 would have moved it by less than rounding of a number of the size of 1 leaves: that it does not move
says nothing. An output that feels a small move of all inputs has no such rounding inside, and none has where another
one of its tensor moves by less than that. But where samples by other inputs scatter, it rounds by as much as they do,
and where something on the way is rounded to fewer digits, it may stand still for as long as that does.
And larger steps, at which such a derivative would be heard, must not all show that there is none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.flags import any_set
from gradverify.core.judging.bench import Bench
from gradverify.core.numeric.samples import Samples, central, to_the_end, unmoved, void

_HEARD = 64.0  # of these units, and times the scatter: what moves by more is heard
_OFF = 0.5  # of the claim, a difference must be off to show another derivative
_SEVERAL = 3  # steps that show one
_UNITS = 8.0  # of rounding of 1, or of the largest output: what moves by less may stand still


def says_nothing(at: Bench, samples: Samples, claimed: Tensor, scatter: Tensor) -> Tensor:
    """Tell which outputs stand still only as far as a derivative as claimed could not be told from none; (C, m).

    `scatter` (C, m) is the noise that the samples of each move show.
    """
    sampled, nothing = at.sampled, void(samples)
    tail = to_the_end(unmoved(sampled, samples) | nothing) & ~nothing
    longest = torch.where(tail, torch.maximum(samples.forth, samples.back), 0.0).amax(dim=1)
    rise, stands = claimed.abs() * longest, tail.any(dim=1)
    stair = sampled.stair() if any_set(stands) and sampled.narrow() else 0.0
    short = stands & (rise <= _UNITS * sampled.unit * sampled.size.clamp(min=1.0))
    coarse = stands & (rise <= stair)
    if not any_set(short | coarse):
        return short
    open_ = coarse | (short & (~at.finely() | (rise <= scatter.amax(dim=0))))
    return open_ & ~_contradicted(at, samples, claimed, scatter, stair) if any_set(open_) else open_


def _contradicted(at: Bench, samples: Samples, claimed: Tensor, scatter: Tensor, stair: float) -> Tensor:
    """Tell which claims the steps contradict at which they would be heard; (C, m)."""
    sampled, there = at.sampled, claimed.unsqueeze(1)
    rounded = (sampled.unit * sampled.size.clamp(min=1.0)).clamp(min=stair)
    loud = torch.maximum(_HEARD * rounded, _HEARD * scatter)
    heard = (there.abs() * samples.forth > loud.unsqueeze(1)) & ~void(samples)
    off = (central(samples) - there).abs() > _OFF * there.abs()
    return ((heard & off).sum(dim=1) >= _SEVERAL) & ~(heard & ~off).any(dim=1)
