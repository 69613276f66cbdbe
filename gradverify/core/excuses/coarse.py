"""Accusations of a backward in low precision that its own rounding explains: it took the branch beside the right one.

A sum that is all but zero may round to the other side of a kink; backward then answers rightly for a point close by.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.excuses.trial import Trial
from gradverify.core.function.chance import scattered
from gradverify.core.function.flags import any_set
from gradverify.core.function.scale import own_or_shared
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.pieces import STEP, slopes

_UNITS = 1.0  # of its rounding, that every input is moved by
_PAIRS = 8  # of opposite points at which derivatives are taken
_DEEP = 16.0  # units of rounding of the largest in its row, that one rounding after the other may leave
_UNEVEN = 0.1  # of the range of slopes: a kink takes at least half of it, and a smooth function next to nothing
_RESOLVED = 0.1  # of an error, that noise may make of a slope
_COLUMNS = 96  # coordinates looked up, at most


def excuse_coarse(trial: Trial, judged: Judged) -> Judged:
    """Take back accusations that lie between derivatives at points within backward's own rounding.

    Where these are those of two pieces, further apart than what is allowed, it is a kink. What sums of roundings might
    leave is not accused either.
    """
    at, chosen = trial.at, trial.chosen
    wrong = judged.code == Code.MISMATCH
    if not at.sampled.coarse or not any_set(wrong):
        return judged
    generator = torch.Generator().manual_seed(trial.seed + 8)
    length = own_or_shared(at.lengths)
    half = [scattered(_UNITS * at.sampled.coarse * length, generator) for _ in range(_PAIRS)]
    around = [torch.zeros_like(length), *half, *(-place for place in half)]
    claimed, owner = at.claimed[chosen], at.moves.owner[chosen]
    code, allowed = judged.code.clone(), judged.allowed.clone()
    row = at.claimed.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
    code[wrong & (judged.error <= _DEEP * at.sampled.coarse * row)] = Code.UNDETERMINED
    columns = torch.unique(owner[wrong])
    taken_back = torch.zeros_like(wrong)
    for column in columns[:_COLUMNS].tolist():
        direction = torch.zeros_like(length)
        direction[column] = length[column]
        found = slopes(at.sampled, around, [direction]).squeeze(1) / length[column]
        low, high = found.amin(dim=0), found.amax(dim=0)
        between = (claimed >= low - judged.allowed) & (claimed <= high + judged.allowed)
        # A forward that is no finer itself shows only noise by such steps.
        resolved = at.noise.level <= _RESOLVED * STEP * length[column] * judged.error
        explained = wrong & (owner == column) & between & resolved
        broken = _broken(found, high - low) & (high - low > judged.allowed)
        code[explained] = torch.where(broken, Code.KINK, Code.MATCH).to(code.dtype)[explained]
        allowed[explained] = torch.maximum(allowed, judged.error)[explained]
        taken_back |= explained
    if any_set(taken_back):  # those that there was no time to look up may be explained as well
        code[wrong & torch.isin(owner, columns[_COLUMNS:])] = Code.UNDETERMINED
    return replace(judged, code=code, allowed=allowed)


def _broken(found: Tensor, spread: Tensor) -> Tensor:
    """Tell where slopes at opposite points do not lie evenly about that between them, as smooth ones do; (m,)."""
    here, forth, back = found[0], found[1 : _PAIRS + 1], found[_PAIRS + 1 :]
    return ((forth + back) / 2 - here).abs().amax(dim=0) > _UNEVEN * spread
