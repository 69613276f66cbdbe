"""A guess that costs two forwards at most: that every output moves with the entries of its own number and no others.

Half of the entries move, of all inputs at once, then the other half: the outputs of those that stay must stay bit for
bit. What moves with one input must afterwards be where six samples, taken with all its entries at once, foretell it to
be, so that whatever reaches an output from its own half shows too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.function.portion import FEW
from gradverify.core.function.room import room
from gradverify.core.function.sampler import Sampler, moved
from gradverify.core.function.scale import Scales
from gradverify.core.numeric import richardson
from gradverify.core.numeric.series import PLACES, Eight
from gradverify.core.numeric.walk import Walk, walk_by_input

_NEARER = 2 / 3  # from random numbers between half and one and a half to places within the largest step


def sampled_entry_by_entry(sampled: Sampler, lengths: Scales, scattered: Tensor) -> tuple[Eight, ...] | None:
    """Return eight samples by each input of a function that seems to go entry by entry, None where it does not.

    Costs up to 8 forwards, or 2 and 7 more for each of several inputs. `scattered` (m,) are random numbers as
    `chance.scattered` makes them.
    """
    if not _may_be(sampled):
        return None
    step, count = richardson.steps(lengths).base, len(sampled.problem.primals)
    numbers = room(count * (2 + len(PLACES)) + 1, sampled.value)
    here, places, apart = (
        numbers[:count].view(-1),
        numbers[count],
        numbers[count + 1 :].view(count, -1, numbers.shape[1]),
    )
    torch.mul(scattered.to(step.device), _NEARER, out=places)
    if not _both_halves_move_alone(sampled, places, step, here, (apart[0, 0], apart[0, 1])):
        return None
    found = []
    for block, outputs in zip(sampled.inputs, apart, strict=True):
        mine = block.coordinates
        point, own = sampled.point[mine], step[mine]
        if count > 1:  # else the two halves together have been there
            torch.addcmul(point, places, own, out=_others_back(sampled, here)[mine])
            moved(sampled, here.detach(), outputs[0])
        for place, into in zip(PLACES, outputs[1:], strict=True):
            torch.add(point, own, alpha=place, out=_others_back(sampled, here)[mine])
            moved(sampled, here.detach(), into)
        found.append(Eight(point=point, step=own, samples=outputs[1:], places=places, last=outputs[0]))
    return tuple(found)


def _others_back(sampled: Sampler, here: Tensor) -> Tensor:
    """Put all entries back to where they belong, where there are several inputs and one alone is to move."""
    return here if len(sampled.inputs) == 1 else here.copy_(sampled.point)


def walk_of(sampled: Sampler, by_input: Sequence[Eight], lengths: Scales, owner: Tensor, outputs: Tensor) -> Walk:
    """Return the six samples by each input as a walk that some outputs (k,) see, due to coordinates `owner` (C, k)."""
    apart = torch.stack([eight.samples[:, outputs] for eight in by_input], dim=1)
    return walk_by_input(sampled, richardson.steps(lengths), owner, apart.add_(sampled.value[outputs]))


def _may_be(sampled: Sampler) -> bool:
    """Tell whether all tensors have one shape, and their numbers are not rounded further."""
    primals = [primal.tensor for primal in sampled.problem.primals]
    shapes = {*sampled.shapes, *(primal.shape for primal in primals)}
    return (
        len(sampled.shapes) == len(shapes) == 1
        and {primal.dtype for primal in primals} == {torch.float64}
        and primals[0].numel() >= (FEW if len(primals) > 1 else 1)
        and len(sampled.value) == primals[0].numel()
    )


def _both_halves_move_alone(
    sampled: Sampler, places: Tensor, step: Tensor, here: Tensor, there: tuple[Tensor, Tensor]
) -> bool:
    """Tell whether only those outputs move whose half of the entries does, and put how far into the first of `there`.

    Which half an entry is in is as random as the side that it moves to, and of all inputs the same. What is in `here`
    and `there` is written over.
    """
    first, second = there
    of_all = places.repeat(len(sampled.inputs))
    for outputs, moving, (low, high) in ((first, places > 0, (0.0, None)), (second, places < 0, (None, 0.0))):
        torch.mul(of_all, step, out=here).clamp_(low, high).add_(sampled.point)
        fine = (moved(sampled, here.detach(), outputs) == 0).logical_or_(moving)
        if not bool(fine.all()) and not bool(fine.logical_or_(_are_no_numbers(outputs, sampled.value)).all()):
            return False
    first.add_(second)  # of the two, one is zero
    return True


def _are_no_numbers(apart: Tensor, value: Tensor) -> Tensor:
    """Tell which outputs are as little a number as they are at the point."""
    return apart.isnan().logical_and_(value.isfinite().logical_not_())
