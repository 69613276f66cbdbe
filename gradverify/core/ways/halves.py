"""A guess that costs two forwards at most: that every output moves with the input of its own number and with no other.

Half of the inputs move, then the other half: the outputs of those that stay must stay bit for bit. What moved must
afterwards be where six samples, taken with all inputs at once, foretell it to be, so that whatever reaches an output
from its own half shows too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.portion import FEW
from gradverify.core.function.room import room
from gradverify.core.function.sampler import Sampler, moved
from gradverify.core.function.scale import Scales
from gradverify.core.numeric import richardson
from gradverify.core.numeric.series import PLACES, Eight
from gradverify.core.numeric.walk import Walk, direct_walk

_NEARER = 2 / 3  # from random numbers between half and one and a half to places within the largest step


def sampled_entry_by_entry(sampled: Sampler, lengths: Scales, scattered: Tensor) -> Eight | None:
    """Return eight samples of a function that seems to go entry by entry, None where it does not; up to 8 forwards.

    `scattered` (m,) are random numbers as `chance.scattered` makes them.
    """
    if not _may_be(sampled):
        return None
    step = richardson.steps(lengths).base
    numbers = room(3 + len(PLACES), step)
    (here, places, last), samples = numbers[:3], numbers[3:]
    torch.mul(scattered.to(step.device), _NEARER, out=places)
    if not _both_halves_move_alone(sampled, places, step, here, (last, samples[0])):
        return None
    for place, into in zip(PLACES, samples, strict=True):
        moved(sampled, torch.add(sampled.point, step, alpha=place, out=here).detach(), into)
    return Eight(step=step, samples=samples, places=places, last=last)


def walk_of(sampled: Sampler, eight: Eight, lengths: Scales, outputs: Tensor) -> Walk:
    """Return the six samples of them that were taken with all inputs at once as a walk that some outputs (k,) see."""
    values = eight.samples[:, outputs].add_(sampled.value[outputs])
    return direct_walk(sampled, richardson.steps(lengths), outputs, values)


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


def _both_halves_move_alone(
    sampled: Sampler, places: Tensor, step: Tensor, here: Tensor, there: tuple[Tensor, Tensor]
) -> bool:
    """Tell whether only those outputs move whose half of the inputs does, and put how far into the first of `there`.

    Which half an input is in is as random as the side that it moves to. What is in `here` and `there` is written over.
    """
    first, second = there
    for outputs, moving, (low, high) in ((first, places > 0, (0.0, None)), (second, places < 0, (None, 0.0))):
        torch.mul(places, step, out=here).clamp_(low, high).add_(sampled.point)
        fine = (moved(sampled, here.detach(), outputs) == 0).logical_or_(moving)
        if not bool(fine.all()) and not bool(fine.logical_or_(_are_no_numbers(outputs, sampled.value)).all()):
            return False
    first.add_(second)  # of the two, one is zero
    return True


def _are_no_numbers(apart: Tensor, value: Tensor) -> Tensor:
    """Tell which outputs are as little a number as they are at the point."""
    return apart.isnan().logical_and_(value.isfinite().logical_not_())
