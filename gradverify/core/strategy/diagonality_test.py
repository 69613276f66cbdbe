"""A guess that costs two forwards at most: that every output moves with the entries of its own number and no others.

Half of the entries move, of all inputs at once, then the other half: the outputs of those that stay must stay bit for
bit. What moves with one input must afterwards be where six samples, taken with all its entries at once, foretell it to
be, so that whatever reaches an output from its own half shows too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.estimate import richardson
from gradverify.core.estimate.stencil import Stencil, stencil_by_input
from gradverify.core.estimate.stencil_polynomial import PLACES, EntrywiseSamples
from gradverify.core.forward.batch_stacking import beside_the_point
from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.sampler import Sampler, along, moved
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import all_set, any_set, identical
from gradverify.core.model.memory import portions, room

_FEW_NUMBERS = 1 << 15  # in all points that go through one call
_NEARER = 2 / 3  # from random numbers between half and one and a half to places within the largest step


def sampled_entry_by_entry(
    sampled: Sampler, lengths: LengthScales, scattered: Tensor
) -> tuple[EntrywiseSamples, ...] | None:
    """Return eight samples by each input of a function that seems to go entry by entry, None where it does not.

    Costs up to 8 forwards, or 2 and 7 more for each of several inputs; 3 where there are so few numbers that all
    samples go through one call. `scattered` (m,) are random numbers as `chance.scattered` makes them.
    """
    if not _may_be(sampled):
        return None
    step, size, count = richardson.steps(lengths).base, sampled.value.numel(), len(sampled.inputs)
    numbers = room(count * (2 + len(PLACES)) + 1, sampled.value)
    here, places, apart = numbers[:count].view(-1), numbers[count], numbers[count + 1 :].view(count, -1, size)
    torch.mul(scattered.to(step.device), _NEARER, out=places)
    if not _both_halves_move_alone(sampled, places, step, here, (apart[0, 0], apart[0, 1])):
        return None
    known = 1 if count == 1 else 0  # of one input, the two halves together have been where the first sample is taken
    left, fractions = apart[:, known:], tuple[Tensor | float, ...]((places, *PLACES))[known:]
    at_once = _sample(sampled, fractions, step, here, left)
    return tuple(
        EntrywiseSamples(
            point=sampled.point[mine],
            step=step[mine],
            samples=outputs[1:],
            places=places,
            last=outputs[0],
            at_once=at_once,
        )
        for mine, outputs in zip([block.coordinates for block in sampled.inputs], apart, strict=True)
    )


def sampled_again(sampled: Sampler, step: Tensor, places: Tensor, outputs: Tensor) -> tuple[EntrywiseSamples, ...]:
    """Return eight samples by each input by other steps (n,), of some of the outputs (k,), which `sampled` looks at.

    The function has been seen to go entry by entry, with the last sample at these `places` (n,). Costs 7 forwards by
    each input, or a single one.
    """
    count = len(sampled.inputs)
    here, apart = torch.empty_like(sampled.point), room(count * (1 + len(PLACES)), sampled.value)
    apart = apart.view(count, -1, len(outputs))
    at_once = _sample(sampled, (places, *PLACES), step, here, apart)
    return tuple(
        EntrywiseSamples(
            point=sampled.point[mine][outputs],
            step=step[mine][outputs],
            samples=found[1:],
            places=places[outputs],
            last=found[0],
            at_once=at_once,
        )
        for mine, found in zip([block.coordinates for block in sampled.inputs], apart, strict=True)
    )


def _sample(sampled: Sampler, fractions: Sequence[Tensor | float], step: Tensor, here: Tensor, into: Tensor) -> bool:
    """Put how far outputs are, where each input alone moves by fractions of its steps, into (inputs, fractions, m).

    Only the first fraction may be one per entry. Tells whether they went through one call. What is in `here` (n,) is
    written over.
    """
    points = sampled.point.numel() * len(fractions) * len(sampled.inputs)
    if points <= _FEW_NUMBERS and _sampled_at_once(sampled, fractions, step, into):
        return True
    _sampled_one_by_one(sampled, fractions, step, here, into)
    return False


def _sampled_at_once(sampled: Sampler, fractions: Sequence[Tensor | float], step: Tensor, into: Tensor) -> bool:
    """Do so in one call, where that can be.

    Beside each other the outputs of such a function are what they are alone, unless they go by their place; then they
    are where no polynomial foretells them, and nothing is settled.
    """
    inputs, count, size = into.shape
    points = sampled.point.expand(inputs * count + 1, -1).contiguous()
    lines = points[:-1].view(inputs, count, inputs, -1)
    even = step.new_tensor([each for each in fractions if not isinstance(each, Tensor)]).unsqueeze(1)
    for number, own in enumerate(step.view(inputs, -1).unbind()):
        line = lines[number, :, number]
        line[-len(even) :].addcmul_(even, own)
        if isinstance(fractions[0], Tensor):
            line[0].addcmul_(fractions[0], own)
    found = beside_the_point(sampled, points)
    if found is None:
        return False
    torch.sub(found[:-1].view(inputs, count, size), found[-1], out=into)
    return True


def _sampled_one_by_one(
    sampled: Sampler, fractions: Sequence[Tensor | float], step: Tensor, here: Tensor, into: Tensor
) -> None:
    """Do so, each in a call of its own."""
    for block, rows in zip(sampled.inputs, into, strict=True):
        mine = block.coordinates
        for fraction, outputs in zip(fractions, rows, strict=True):
            if len(into) > 1:
                here.copy_(sampled.point)
            if isinstance(fraction, Tensor):
                torch.addcmul(sampled.point[mine], fraction, step[mine], out=here[mine])
            else:
                torch.add(sampled.point[mine], step[mine], alpha=fraction, out=here[mine])
            moved(sampled, here.detach(), outputs)


def stencil_of(
    sampled: Sampler, by_input: Sequence[EntrywiseSamples], lengths: LengthScales, column_of: Tensor, outputs: Tensor
) -> Stencil:
    """Return the six samples by each input as a walk that some outputs (k,) see, due to coordinates `owner` (C, k)."""
    apart = torch.stack([eight.samples[:, outputs] for eight in by_input], dim=1)
    return stencil_by_input(sampled, richardson.steps(lengths), column_of, apart.add_(sampled.value[outputs]))


def are_isolated(sampled: Sampler, lengths: LengthScales, column_of: Tensor) -> bool:
    """Tell whether outputs looked at (k,) stay bit for bit while all coordinates move but their owners (C, k).

    All others first, then the owners of those outputs whose number has a certain bit, and of those that have it not,
    which keeps every two of them apart once. Costs a forward, and two for every bit.
    """
    step, generator = richardson.steps(lengths).base, torch.Generator().manual_seed(0)
    others = torch.ones_like(step, dtype=torch.bool)
    others[column_of.flatten()] = False
    number = torch.arange(column_of.shape[1], device=step.device)
    bits = [(number >> bit) % 2 == value for bit in range(max(0, len(number) - 1).bit_length()) for value in (0, 1)]
    for reached in (torch.zeros_like(number, dtype=torch.bool), *bits):
        moving = others.clone() if not any_set(reached) else torch.zeros_like(others)
        moving[column_of[:, reached].flatten()] = True
        there = along(sampled, torch.where(moving, scattered(step, generator), 0.0))
        if not identical(there[~reached], sampled.value[~reached]):
            return False
    return True


def _may_be(sampled: Sampler) -> bool:
    """Tell whether all tensors have one shape, and their numbers are not rounded further."""
    primals = [primal.tensor for primal in sampled.problem.primals]
    shapes = {*sampled.shapes, *(primal.shape for primal in primals)}
    return (
        len(sampled.shapes) == len(shapes) == 1
        and {primal.dtype for primal in primals} == {torch.float64}
        and primals[0].numel() > 0
        and sampled.value.numel() == primals[0].numel()
    )


def _both_halves_move_alone(
    sampled: Sampler, places: Tensor, step: Tensor, here: Tensor, there: tuple[Tensor, Tensor]
) -> bool:
    """Tell whether only those outputs move whose half of the entries does, and put how far into the first of `there`.

    Which half an entry is in is as random as the side that it moves to, and of all inputs the same. What is in `here`
    and `there` is written over.
    """
    first, second = there
    for outputs, (low, high) in ((first, (0.0, None)), (second, (None, 0.0))):
        _put(sampled, places, (low, high), step, here)
        moved(sampled, here.detach(), outputs)
        fine = (outputs == 0).logical_or_(places > 0 if high is None else places < 0)
        if not all_set(fine) and not all_set(fine.logical_or_(_are_no_numbers(outputs, sampled.value))):
            return False
    first.add_(second)  # of the two, one is zero
    return True


def _put(
    sampled: Sampler, places: Tensor, between: tuple[float | None, float | None], step: Tensor, here: Tensor
) -> None:
    """Put into `here` (n,) where places (m,) of every input are, those not between two numbers left at the nearer."""
    of_all = places.expand(len(sampled.inputs), -1).flatten()  # a copy only where inputs are several
    for part in portions(here):
        torch.mul(of_all[part], step[part], out=here[part]).clamp_(*between).add_(sampled.point[part])


def _are_no_numbers(apart: Tensor, value: Tensor) -> Tensor:
    """Tell which outputs are as little a number as they are at the point."""
    return apart.isnan().logical_and_(value.isfinite().logical_not_())
