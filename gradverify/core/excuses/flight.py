"""Flights of stairs: forwards that compute in half precision inside, or quantise finely.

Such a forward does not move at all at small steps, and its derivative there is zero in truth; at larger steps it goes
up as the function that it stands for. Where backward says what the larger steps show, both are right in their way.
A flight is told from something flat between two slopes by being flat at small steps wherever it is looked at, and by
its noise: that of stairs is as loud for samples far apart as for samples close together.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.excuses.trial import Trial
from gradverify.core.function.chance import scattered
from gradverify.core.function.flags import any_set
from gradverify.core.function.lasting import heard_at
from gradverify.core.function.sampler import along, magnitudes
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.ladder import halving_steps
from gradverify.core.numeric.samples import central
from gradverify.core.numeric.walk import sample

_SPACINGS = tuple(2.0**-k for k in range(3, 13))  # of the samples, relative to the length scale
_STEADY, _SAME = 4, 4.0  # over so many of them, noise stays the same up to this factor; a kink's falls by 8
_HIGHEST = 2.0**-4  # of the output's tensor: what is higher is no precision that anybody computes in
_AROUND = (0.3, 1.0, 3.0, 6.0)  # how far, in length scales, flatness is looked for on either side
_SMALL, _SELDOM = 2.0**-24, 1  # steps there, and how often stairs may end within one
_HEIGHTS = 4.0  # of a stair, that a difference may be off by


def excuse_flights(trial: Trial, judged: Judged) -> Judged:
    """Leave open what is accused where the output lies on a stair and larger steps show what backward says."""
    at, chosen = trial.at, trial.chosen
    claimed = at.claimed[chosen]
    accused = (judged.code == Code.MISMATCH) & (claimed != 0) & (judged.numeric.abs() <= judged.bar)
    if not any_set(accused):
        return judged
    height = torch.where(_flat_all_around(at), _heights(at), 0.0)
    accused &= height > 0
    rows = accused.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return judged
    samples = sample(at.sampled, at.moves, chosen[rows], halving_steps(at.lengths))
    difference = central(samples)
    change = torch.cat([torch.zeros_like(difference[:, :1]), difference.diff(dim=1).abs()], dim=1)
    doubt = _HEIGHTS * height / samples.forth + change
    shown = ((claimed[rows].unsqueeze(1) - difference).abs() <= doubt).any(dim=1)
    open_ = torch.zeros_like(accused)
    open_[rows] = accused[rows] & shown
    code = judged.code.masked_fill(open_, Code.UNDETERMINED)
    return replace(judged, code=code, bar=torch.where(open_, judged.error, judged.bar))


def _flat_all_around(at: Bench) -> Tensor:
    """Tell which outputs do not move at small steps wherever they are looked at; (m,).

    Beyond a dead zone, a clamp or a jump they do, and what ripples with any of the inputs moves everywhere.
    """
    generator = torch.Generator().manual_seed(0)
    small = _SMALL * scattered(at.lengths.shared, generator)
    near = _HIGHEST * scattered(at.lengths.shared, generator)
    moved, rises = torch.zeros_like(at.sampled.value, dtype=torch.long), []
    for distance in _AROUND:
        far = distance * scattered(at.lengths.shared, generator)
        for there in (far, -far):
            here = along(at.sampled, there)
            moved += here != along(at.sampled, there + small)
            rises.append((along(at.sampled, there + near) - here).abs())
    return (moved <= _SELDOM) & (_lowest(at, torch.stack(rises)) <= _HIGHEST * at.sampled.size)


def _lowest(at: Bench, rises: Tensor) -> Tensor:
    """Return the lowest of the rises (N, m) of each output's tensor, all of which are whole numbers of stairs; (m,)."""
    steepest = torch.where(rises > 0, rises, torch.inf).amin(dim=0).reciprocal()
    return magnitudes(at.sampled, steepest).reciprocal()


def _heights(at: Bench) -> Tensor:
    """Return how high the stairs of each output are, 0 where its tensor moves in none; (m,)."""
    heard = [magnitudes(at.sampled, heard_at(at.sampled, at.lengths, spacing)) for spacing in _SPACINGS]
    runs = torch.stack(heard).unfold(0, _STEADY, 1)  # (runs, m, steady)
    steady = (runs.amax(dim=2) <= _SAME * runs.amin(dim=2)) & (runs.amin(dim=2) > 0)
    height = torch.where(steady, runs.amax(dim=2), 0.0).amax(dim=0)
    return torch.where(height <= _HIGHEST * at.sampled.size, height, 0.0)
