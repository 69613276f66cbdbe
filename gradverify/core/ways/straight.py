"""Moves along which the function is a straight line, told by one step.

A sum, a product of matrices or a convolution is linear in each of its inputs, however it goes on in all of them. Where
the outputs lie on a line along a direction in which all entries of an input move, and those after a step of a single
move have risen by what backward claims, but for noise, more and smaller steps would show the same: six times as many
samples say no more. A function that has something of its own between the steps would still be taken for a line. So all
of these moves together must rise along another random direction as their slopes add up to, by steps a hundred
times as small and less. Whatever is not settled so is looked at as ever.
"""

from __future__ import annotations

from itertools import compress

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered
from gradverify.core.function.coordinates import Block
from gradverify.core.function.flags import all_set
from gradverify.core.function.portion import chunks
from gradverify.core.function.together import evaluate
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.columns import Known
from gradverify.core.judging.compare import Judged
from gradverify.core.judging.lines import are_lines, on_lines
from gradverify.core.judging.replaced import of_rows, stacked
from gradverify.core.numeric.directional import differs_where_straight
from gradverify.core.numeric.moves import to_owners
from gradverify.core.numeric.samples import Estimate
from gradverify.core.numeric.walk import stepped

_WORTH = 1 << 15  # numbers in the points and outputs of all moves: with fewer, another call costs more than it saves
_STEP = 2.0**-6  # relative to the length scale
_FARTHER = 4.0  # times the step: what bends by noise over such a distance bends by much less over a step


def straight_moves(at: Bench, seed: int) -> Known | None:
    """Return the moves that are straight lines with the slope claimed, and the verdicts on their entries."""
    if at.moves.count * at.width < _WORTH:
        return None
    generator = torch.Generator().manual_seed(seed + 2)
    worth = _linear(at, scattered(at.lengths.step, generator))
    if not len(worth):
        return None
    looks = [_look(at, chosen) for chosen in chunks(worth, at.width)]
    lines = torch.cat([line for _, line in looks])
    judged = stacked([found for found, _ in looks]) if len(looks) > 1 else looks[0][0]
    if not all_set(lines):
        worth, judged = worth[lines], of_rows(judged, lines)
    other = scattered(at.lengths.step, generator)
    return Known(moves=worth, judged=judged) if len(worth) and _add_up(at, worth, judged, other) else None


def _linear(at: Bench, direction: Tensor) -> Tensor:
    """Return the moves of the inputs in which the function is linear, as far as a random direction tells; (k,)."""
    sampled, blocks = at.sampled, at.sampled.inputs
    far = torch.stack([_within(direction, block) for block in blocks]).mul_(_FARTHER * _STEP)
    there = sampled.value.new_empty(2, len(blocks), len(sampled.value))
    evaluate(sampled, torch.cat([sampled.point + far, sampled.point - far]), there.flatten(0, 1))
    linear = are_lines(sampled, at.noise, there[0], there[1]).all(dim=1).tolist()
    if all(linear):
        return torch.arange(at.moves.count, device=direction.device)
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
    values, far = stepped(at.sampled, at.moves, chosen, at.lengths.step * _STEP)
    judged, fine = on_lines(at, chosen, values, far)
    return judged, fine.all(dim=1)


def _add_up(at: Bench, chosen: Tensor, judged: Judged, direction: Tensor) -> bool:
    """Tell whether the function rises along a direction, as far as it is these moves, as their entries add up to."""
    if len(chosen) < at.moves.count:
        moving = torch.zeros(at.moves.count, dtype=torch.bool, device=chosen.device)
        moving[chosen] = True
        direction = torch.where(moving[at.moves.colour], direction, 0.0)
    by = to_owners(at.moves, direction)
    by = by if len(chosen) == at.moves.count else by[chosen]
    total = Estimate(value=(judged.numeric * by).sum(dim=0), bar=(judged.bar * by.abs()).sum(dim=0))
    return not differs_where_straight(at.sampled, at.noise, direction, total)
