"""Moves along which the function is a straight line, told by one step to either side.

A sum, a product of matrices or a convolution is linear in each of its inputs, however it goes on in all of them. Where
the two samples of a move lie on one line with the point, but for noise, and the slope is what backward claims, but for
noise, smaller steps would show the same: three times as many samples say no more. A function that has something of its
own between the steps would still be taken for a line. So all of these moves together must rise along a random direction
as their slopes add up to, by steps thirty times as small and less. Whatever is not settled so is looked at as ever.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import compress

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered
from gradverify.core.function.coordinates import Block
from gradverify.core.function.portion import chunks
from gradverify.core.function.together import evaluate
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.cheap import is_line, straight_look
from gradverify.core.judging.columns import Known
from gradverify.core.judging.compare import Judged
from gradverify.core.judging.replaced import of_rows, stacked
from gradverify.core.numeric import richardson
from gradverify.core.numeric.directional import differs
from gradverify.core.numeric.moves import to_owners
from gradverify.core.numeric.samples import Estimate
from gradverify.core.numeric.walk import walked

_WORTH = 1 << 15  # numbers in the points and outputs of all moves: with fewer, another call costs more than it saves
_MOST = 0.9  # of the outputs lie on a line where an input is worth trying: small sums are noisier than they seem


def straight_moves(at: Bench, seed: int) -> Known | None:
    """Return the moves that are straight lines with the slope claimed, and the verdicts on their entries."""
    if at.moves.count * at.width < _WORTH:
        return None
    generator = torch.Generator().manual_seed(seed + 2)
    direction = scattered(at.lengths.step, generator)
    worth = _linear(at, direction)
    if not len(worth):
        return None
    looks = [_look(at, chosen) for chosen in chunks(worth, 2 * at.width)]
    lines = torch.cat([line for _, line in looks])
    judged = stacked([found for found, _ in looks]) if len(looks) > 1 else looks[0][0]
    if not bool(lines.all()):
        worth, judged = worth[lines], of_rows(judged, lines)
    other = scattered(at.lengths.step, generator)
    return Known(moves=worth, judged=judged) if len(worth) and _add_up(at, worth, judged, other) else None


def _linear(at: Bench, direction: Tensor) -> Tensor:
    """Return the moves of the inputs in which the function is linear, as far as a random direction tells; (k,)."""
    sampled, blocks = at.sampled, at.sampled.inputs
    far = torch.stack([_within(direction, block) for block in blocks]).mul_(richardson.FIRST)
    there = sampled.value.new_empty(2, len(blocks), len(sampled.value))
    evaluate(sampled, torch.cat([sampled.point + far, sampled.point - far]), there.flatten(0, 1))
    linear = (is_line(sampled, at.noise, there[0], there[1]).to(torch.float64).mean(dim=1) >= _MOST).tolist()
    found = torch.zeros(at.moves.count, dtype=torch.bool, device=direction.device)
    for block in compress(blocks, linear):
        found[at.moves.colour[block.coordinates]] = True
    return found.nonzero().squeeze(1)


def _within(direction: Tensor, block: Block) -> Tensor:
    """Return the part of a direction (n,) that moves this input only."""
    mine = torch.zeros_like(direction)
    mine[block.coordinates] = direction[block.coordinates]
    return mine


def _look(at: Bench, chosen: Tensor) -> tuple[Judged, Tensor]:
    """Return the verdicts on the entries of some moves by one step, and which moves are straight lines, (C,)."""
    steps = richardson.steps(at.lengths)
    found = straight_look(at, walked(at.sampled, at.moves, chosen, replace(steps, factors=steps.factors[:1])))
    return found.judged, ~found.doubt.any(dim=1)


def _add_up(at: Bench, chosen: Tensor, judged: Judged, direction: Tensor) -> bool:
    """Tell whether the function rises along a direction, as far as it is these moves, as their entries add up to."""
    if len(chosen) < at.moves.count:
        moving = torch.zeros(at.moves.count, dtype=torch.bool, device=chosen.device)
        moving[chosen] = True
        direction = torch.where(moving[at.moves.colour], direction, 0.0)
    by = to_owners(at.moves, direction)[chosen]
    total = Estimate(value=(judged.numeric * by).sum(dim=0), bar=(judged.bar * by.abs()).sum(dim=0))
    return not bool(differs(at.sampled, at.noise, direction, total).any())
