"""Test whether a function is elementwise: output k depends on entry k of each input and on no other.

A random half of the entry numbers is perturbed in all inputs at once, then the other half. The outputs of unperturbed
entries must stay bit for bit the same; this costs two forwards at most. Then each input is sampled alone, all its
entries at once. A sample at random places must lie where the polynomial through the others predicts it, so that a
dependence within one half shows as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate import richardson
from gradverify.core.estimate.richardson import PLACES
from gradverify.core.forward.batch_stacking import stacked_with_point
from gradverify.core.forward.sampler import Sampler, change_at
from gradverify.core.model.generators import MAGNITUDES
from gradverify.core.model.limits import portion, portions, uninitialised_rows
from gradverify.core.model.magnitudes import LengthScales, all_set


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrywiseSamples:
    """Samples of a function of M inputs of n entries, whose output i seems to depend only on entry i of each."""

    step: Tensor  # (M, n) the largest step of each entry
    samples: Tensor  # (6, M, n) outputs at `PLACES` (in steps) of one input, relative to those at the point
    places: Tensor  # (n,) the place of one more sample per entry, random, in steps
    last: Tensor  # (M, n) outputs there, relative to those at the point

    def of(self, outputs: Tensor | slice) -> EntrywiseSamples:
        """Return the samples of some of the outputs."""
        return EntrywiseSamples(
            step=self.step[:, outputs],
            samples=self.samples[..., outputs],
            places=self.places[outputs],
            last=self.last[:, outputs],
        )


def sample_elementwise(sampled: Sampler, lengths: LengthScales, random: Tensor) -> EntrywiseSamples | None:
    """Return the samples by each input of a function that may be elementwise; None if it is not.

    Costs up to 8 forwards for one input, up to 2 + 7 k for k inputs, or 3 if all samples are so small that they go
    through one call. `random` (m,) are numbers of either sign with magnitudes between 1/2 and 3/2.
    """
    if not _may_be_elementwise(sampled):
        return None
    step, entries, count = richardson.steps(lengths).base, sampled.value.numel(), len(sampled.inputs)
    memory = uninitialised_rows(count * (2 + len(PLACES)) + 1, sampled.value)
    point, places, differences = memory[:count].view(-1), memory[count], memory[count + 1 :].view(-1, count, entries)
    torch.div(random.to(step.device), MAGNITUDES[1], out=places)  # within the largest step
    if not _halves_are_independent(sampled, places, step, point, (differences[0, 0], differences[1, 0])):
        return None
    done = 1 if count == 1 else 0  # for one input, the two halves together are the first sample
    fractions = (places, *step.new_tensor(PLACES))[done:]
    _sample(sampled, fractions, step, point, differences[done:], (places, differences[0, 0]))
    return EntrywiseSamples(step=step.view(count, -1), samples=differences[1:], places=places, last=differences[0])


def sample_elementwise_again(sampled: Sampler, step: Tensor, places: Tensor, outputs: Tensor) -> EntrywiseSamples:
    """Return the samples by each input with other steps (n,), of the outputs (k,) that `sampled` is focused on.

    `places` (m,) are those of the random sample of every output. Costs 7 forwards per input, or a single one.
    """
    count, point = len(sampled.inputs), torch.empty_like(sampled.point)
    differences = uninitialised_rows(count * (1 + len(PLACES)), sampled.value).view(-1, count, len(outputs))
    _sample(sampled, (places, *step.new_tensor(PLACES)), step, point, differences)
    return EntrywiseSamples(
        step=step.view(count, -1)[:, outputs], samples=differences[1:], places=places[outputs], last=differences[0]
    )


def _sample(
    sampled: Sampler,
    fractions: Sequence[Tensor],
    step: Tensor,
    point: Tensor,
    into: Tensor,
    known: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Write f(x + displacement) - f(x) to `into` (fractions, inputs, m), each input displaced alone.

    The displacements are fractions of its steps, each () or one per entry. Large points take a call each; `point` (n,)
    is overwritten. `known` are a fraction for each entry and the changes, (m,) each, with all inputs displaced by it.
    """
    numbers = sampled.point.numel() * len(fractions) * len(sampled.inputs)
    if numbers <= portion(point) and _sampled_at_once(sampled, fractions, step, into, known):
        return
    for block, rows in zip(sampled.inputs, into.unbind(dim=1), strict=True):
        own = block.coordinates
        for fraction, differences in zip(fractions, rows, strict=True):
            if len(sampled.inputs) > 1:
                point.copy_(sampled.point)
            torch.addcmul(sampled.point[own], fraction, step[own], out=point[own])
            change_at(sampled, point.detach(), differences)


def _sampled_at_once(
    sampled: Sampler, fractions: Sequence[Tensor], step: Tensor, into: Tensor, known: tuple[Tensor, Tensor] | None
) -> bool:
    """Do the same in one call; return False if the points cannot be stacked.

    An elementwise function gives stacked points the same outputs as single ones, unless it depends on the position of
    an entry or on their number. So the first row is one that is `known`, and the last is the point.
    """
    count, inputs, size = into.shape
    points = sampled.point.expand(inputs * count + 2, -1).contiguous()
    first = sampled.value
    if known is not None:
        points[0] += known[0].expand(inputs, -1).flatten() * step
        first = sampled.value + known[1]
    samples, steps = points[1:-1].view(count, inputs, inputs, -1), step.view(inputs, -1)
    every_fraction = torch.stack([fraction.expand_as(steps[0]) for fraction in fractions])
    for k, own_step in enumerate(steps):
        samples[:, k, k].addcmul_(every_fraction, own_step)
    values = stacked_with_point(sampled, points, first)
    if values is None:
        return False
    torch.sub(values[1:-1].view(count, inputs, size), values[-1], out=into)
    return True


def _may_be_elementwise(sampled: Sampler) -> bool:
    """True if the output and all inputs have one shape, and the inputs are float64, so that steps are not rounded."""
    primals = [primal.tensor for primal in sampled.problem.primals]
    shapes = {*sampled.shapes, *(primal.shape for primal in primals)}
    return (
        len(sampled.shapes) == len(shapes) == 1
        and {primal.dtype for primal in primals} == {torch.float64}
        and primals[0].numel() > 0
        and sampled.value.numel() == primals[0].numel()
    )


def _halves_are_independent(
    sampled: Sampler, places: Tensor, step: Tensor, point: Tensor, buffers: tuple[Tensor, Tensor]
) -> bool:
    """True if perturbing either half of the entries changes no output of the other half.

    The sign of `places` decides the half of an entry, the same in all inputs. The changes f - f(x) of both halves,
    added up, are written to `buffers[0]`. `point` and `buffers[1]` are overwritten.
    """
    first, second = buffers
    for differences, (low, high) in ((first, (0.0, None)), (second, (None, 0.0))):
        _displace(sampled, places, (low, high), step, point)
        change_at(sampled, point.detach(), differences)
        allowed = (differences == 0).logical_or_(places > 0 if high is None else places < 0)
        if not all_set(allowed):  # NaN where the output was not finite at the point either
            undefined = differences.isnan().logical_and_(sampled.value.isfinite().logical_not_())
            if not all_set(allowed.logical_or_(undefined)):
                return False
    first.add_(second)  # of the two, one is zero
    return True


def _displace(
    sampled: Sampler, places: Tensor, between: tuple[float | None, float | None], step: Tensor, point: Tensor
) -> None:
    """Write x + places · step of every input to `point` (n,), with the displacements clamped to `between`."""
    of_all_inputs = places.expand(len(sampled.inputs), -1).flatten()  # a copy only where inputs are several
    for part in portions(point):
        torch.mul(of_all_inputs[part], step[part], out=point[part]).clamp_(*between).add_(sampled.point[part])
