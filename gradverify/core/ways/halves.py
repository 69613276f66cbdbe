"""A guess that costs two forwards at most: that every output moves with the input of its own number and with no other.

Half of the inputs move, then the other half: the outputs of those that stay must stay bit for bit. What moved must
afterwards be where six samples, taken with all inputs at once, foretell it to be, so that whatever reaches an output
from its own half shows too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered
from gradverify.core.function.portion import FEW
from gradverify.core.function.sampler import Sampler, single
from gradverify.core.function.scale import Scales
from gradverify.core.judging.settled import Eight
from gradverify.core.numeric import richardson
from gradverify.core.numeric.moves import Kind, Moves
from gradverify.core.numeric.series import PLACES
from gradverify.core.numeric.walk import Walk

# Of the largest step: places at random are between a third of this and all of it.
_FURTHEST = torch.tensor(2 / 3, dtype=torch.float64, device="cpu")


def sampled_entry_by_entry(sampled: Sampler, lengths: Scales, seed: int) -> Eight | None:
    """Return eight samples of a function that seems to go entry by entry, None where it does not; up to 8 forwards."""
    if not _may_be(sampled):
        return None
    generator = torch.Generator().manual_seed(seed + 4)
    step = richardson.steps(lengths).base
    places = scattered(_FURTHEST.expand(len(step)).to(step.device), generator)
    there = _both_halves(sampled, places, step, generator)
    if there is None:
        return None
    samples = step.new_empty(len(PLACES), len(step))
    for place, into in zip(PLACES, samples, strict=True):
        single(sampled, torch.add(sampled.point, step, alpha=place), into)
    owner = torch.arange(len(step), device=step.device).unsqueeze(0)
    moves = Moves(kind=Kind.SHARED, colour=torch.zeros_like(owner[0, :1]).expand(len(step)), owner=owner, direct=True)
    return Eight(moves=moves, step=step, samples=samples, places=places, there=there)


def walk_of(eight: Eight, lengths: Scales) -> Walk:
    """Return the six samples of them that were taken with all inputs at once as a walk of the one move."""
    return Walk(
        chosen=torch.zeros(1, dtype=torch.long, device=eight.step.device),
        steps=richardson.steps(lengths),
        lengths=eight.samples[:, :0],
        spot=eight.moves.owner[:, :0],
        values=eight.samples.unsqueeze(1),
    )


def _may_be(sampled: Sampler) -> bool:
    """Tell whether there is one tensor in and one of the same shape out, and their numbers are not rounded further."""
    primals = [primal.tensor for primal in sampled.problem.primals]
    return (
        len(primals) == 1
        and sampled.shapes == (primals[0].shape,)
        and primals[0].numel() >= FEW
        and primals[0].dtype is torch.float64
        and len(sampled.value) == len(sampled.point)
    )


def _both_halves(sampled: Sampler, places: Tensor, step: Tensor, generator: torch.Generator) -> Tensor | None:
    """Return the outputs that move when their half of the inputs does, None where others move too; (n,)."""
    first = torch.randint(0, 2, step.shape, generator=generator, dtype=torch.bool, device="cpu").to(step.device)
    halves = []
    for moving in (first, ~first):
        there = single(sampled, torch.addcmul(sampled.point, places * moving, step))
        if not bool((there == sampled.value).logical_or_(moving).all()):
            return None
        halves.append(there)
    return torch.where(first, halves[0], halves[1])
