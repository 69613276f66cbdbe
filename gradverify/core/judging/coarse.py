"""Accusations of a backward in low precision that its own rounding explains: it took the branch beside the right one.

A sum that is all but zero may round to the other side of a kink; backward then answers rightly for a point close by.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered
from gradverify.core.function.scale import own_or_shared
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.pieces import slopes

_UNITS = 4.0  # of its rounding, that every input is moved by
_PAIRS = 8  # of opposite points at which derivatives are taken
_UNEVEN = 0.1  # of the range of slopes: a kink takes at least half of it, and a smooth function next to nothing
_COLUMNS = 96  # coordinates looked up, at most


def excuse_coarse(at: Bench, chosen: Tensor, judged: Judged, seed: int) -> Judged:
    """Turn accusations that lie between derivatives at points within backward's own rounding into kinks."""
    wrong = judged.code == Code.MISMATCH
    if not at.sampled.coarse or not bool(wrong.any()):
        return judged
    generator = torch.Generator().manual_seed(seed + 8)
    length = own_or_shared(at.lengths)
    half = [scattered(_UNITS * at.sampled.coarse * length, generator) for _ in range(_PAIRS)]
    around = [torch.zeros_like(length), *half, *(-place for place in half)]
    claimed, owner = at.claimed[chosen], at.moves.owner[chosen]
    code = judged.code.clone()
    columns = torch.unique(owner[wrong])
    code[wrong & torch.isin(owner, columns[_COLUMNS:])] = Code.UNDETERMINED
    for column in columns[:_COLUMNS].tolist():
        direction = torch.zeros_like(length)
        direction[column] = length[column]
        found = slopes(at.sampled, around, [direction]).squeeze(1) / length[column]
        low, high = found.amin(dim=0), found.amax(dim=0)
        between = (claimed >= low - judged.allowed) & (claimed <= high + judged.allowed)
        code[wrong & (owner == column) & between & _broken(found, high - low)] = Code.KINK
    return replace(judged, code=code)


def _broken(found: Tensor, spread: Tensor) -> Tensor:
    """Tell where slopes at opposite points do not lie evenly about that between them, as smooth ones do; (m,)."""
    here, forth, back = found[0], found[1 : _PAIRS + 1], found[_PAIRS + 1 :]
    return ((forth + back) / 2 - here).abs().amax(dim=0) > _UNEVEN * spread
