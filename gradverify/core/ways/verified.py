"""A structure is believed only after it has been put to the test, on both sides, with fresh random vectors.

Backward: u·A as the entries give it must be the vjp of u. Forward: J·v as the entries give it must be the difference
along a v without small components. And what is accused must be seen again when its coordinate is moved alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.function.analytic import Reverse, row
from gradverify.core.function.chance import scattered
from gradverify.core.function.flags import all_set, any_set
from gradverify.core.function.portion import portion, portions
from gradverify.core.function.sampler import along
from gradverify.core.judging.bench import Bench
from gradverify.core.numeric import richardson
from gradverify.core.numeric.directional import ROUNDING, differs_closer_by
from gradverify.core.numeric.moves import Moves, by_owner, single_moves
from gradverify.core.numeric.samples import BAR_FACTOR, finest_noise
from gradverify.core.numeric.walk import sample
from gradverify.core.ways import added as found_by
from gradverify.core.ways.added import Added
from gradverify.core.ways.structure import Structure, confined_dimensions

_LAST_DIGITS = 2.0**-46  # of a product
_ULPS = 64.0  # of the inputs' own dtype, where that is coarser
_FAINT = 1e-4  # of the largest sum: what rounding elsewhere may leave in a sum of nothing
_NUDGE = 2.0**-8  # how far they move, relative to the length scale
_CONFIRMED = 6  # accused coordinates that are moved alone


def claims_hold(backward: Reverse, moves: Moves, claimed: Tensor, seed: int) -> bool:
    """Tell whether the claimed entries, and no others, make up backward's answer to random cotangents.

    Of coordinates with a claim that is no number, sums say nothing. The second cotangent gives every row the same
    weight, so that a stray entry is seen beside its own row, however small that is beside others.
    """
    size = claimed.abs().nan_to_num_(0.0, 0.0, 0.0)
    weights = size.amax(dim=0) if len(size) > 1 else size[0]
    weights.masked_fill_(weights == 0, 1.0).reciprocal_()
    rounding = max(ROUNDING, _ULPS * max(torch.finfo(primal.tensor.dtype).eps for primal in backward.problem.primals))
    if not _claims_hold(moves, claimed, *backward.heard, rounding):
        return False
    cotangent = scattered(weights, torch.Generator().manual_seed(seed + 1))
    return _claims_hold(moves, claimed, cotangent, row(backward, cotangent), rounding)


def each_by_its_own(backward: Reverse, claimed: Tensor) -> bool:
    """Tell whether backward's first answer is the claims times the cotangent, to the last digits.

    The claims (M, m) are those on the entries of M inputs. Then no second cotangent need be asked: where a claim is
    what a cotangent of ones has answered, whatever comes from other cotangents has come with other weights.
    """
    cotangent, answer = backward.heard
    cotangent, answers = cotangent.to(claimed.device), answer.view_as(claimed)
    parts = portions(cotangent)
    return all(_is_product(answers[:, some], claimed[:, some] * cotangent[some]) for some in parts)


def _is_product(told: Tensor, product: Tensor) -> bool:
    return torch.equal(told, product) or all_set((told - product).abs_() <= product.abs_().mul_(_LAST_DIGITS))


def _claims_hold(moves: Moves, claimed: Tensor, cotangent: Tensor, answer: Tensor, rounding: float) -> bool:
    cotangent = cotangent.to(claimed.device)
    if not moves.direct:
        terms = claimed * cotangent
        total = by_owner(moves, terms)
        off, size = (answer - total).abs_(), total.abs_()
        if _are_rounding(off, size, _largest(size), rounding):  # the terms are larger still
            return True
        size = by_owner(moves, terms.abs_())
        return _are_rounding(off, size, _largest(size), rounding)
    width = portion(answer)  # every sum has one term
    parts = list(zip(*(torch.split(values, width) for values in (claimed[0], cotangent, answer)), strict=True))
    largest = max(_largest((mine * by).abs_()) for mine, by, _ in parts)
    return all(
        _are_rounding((told - term).abs_(), term.abs_(), largest, rounding)
        for mine, by, told in parts
        for term in [mine * by]
    )


def _largest(size: Tensor) -> float:
    """Return the largest finite size."""
    largest = float(size.amax()) if size.numel() else 0.0
    return largest if largest < math.inf else float(size.nan_to_num(0.0, 0.0).max())


def _are_rounding(off: Tensor, size: Tensor, largest: float, rounding: float) -> bool:
    """Tell whether sums with terms of such sizes are off by no more than rounding, where they are numbers at all."""
    known = size.isfinite()
    allowed = size.add_(_FAINT * largest).mul_(rounding)
    return all_set((off <= allowed).logical_or_(known.logical_not_()))


def differences_hold(at: Bench, added: Added, seed: int) -> bool:
    """Tell whether the measured entries, and no others, make up the differences along random directions."""
    if found_by.strays(added):
        return False
    generator = torch.Generator().manual_seed(seed + 2)
    direction = scattered(at.lengths.step, generator)
    total, judged = found_by.along(added, direction), found_by.smooth(added)
    return not any_set(differs_closer_by(at.sampled, at.noise, direction, total, judged))


def pattern_holds(at: Bench, added: Added, structure: Structure, seed: int) -> bool:
    """Tell whether outputs stay bit for bit the same while coordinates move that should not reach them.

    Asked where outputs with a kink cannot be added up, so that `differences_hold` has nothing to say of them. First all
    coordinates move but those that own such an output; then, dimension by dimension, the slices whose number has a
    certain bit, and those that have it not, which keeps every two slices apart once.
    """
    rough = ~found_by.smooth(added)
    if not any_set(rough):
        return True
    generator = torch.Generator().manual_seed(seed + 3)
    owner = at.moves.owner[:, rough]
    mine = torch.zeros_like(at.sampled.point, dtype=torch.bool)
    mine[owner[owner >= 0]] = True
    return all(_untouched(at, moving, generator) for moving in (~mine, *_halves(at, structure)))


def _halves(at: Bench, structure: Structure) -> Iterator[Tensor]:
    """Yield sets of coordinates, (n,) bool: half of the slices of a confined input dimension at a time."""
    for source, dimension in confined_dimensions(structure):
        size = source.shape[dimension]
        shape = [size if axis == dimension else 1 for axis in range(len(source.shape))]
        for bit in range((size - 1).bit_length()):
            for value in (0, 1):
                slices = (torch.arange(size) >> bit) % 2 == value
                moving = torch.zeros(at.sampled.point.shape, dtype=torch.bool)
                place = slice(source.start, source.start + torch.Size(source.shape).numel())
                moving[place] = slices.reshape(shape).expand(source.shape).reshape(-1)
                yield moving.to(at.sampled.point.device)


def _untouched(at: Bench, moving: Tensor, generator: torch.Generator) -> bool:
    displacement = scattered(at.lengths.step * _NUDGE, generator)
    there = along(at.sampled, torch.where(moving, displacement, 0.0))
    reached = (moving[at.moves.owner.clamp(min=0)] & (at.moves.owner >= 0)).any(dim=0)
    return all_set(reached | (there == at.sampled.value) | ~torch.isfinite(at.sampled.value))


def accusations_hold(at: Bench, added: Added) -> bool:
    """Tell whether accused coordinates, moved alone, give the same derivatives as moved together with others."""
    accused = found_by.accused(added, _CONFIRMED)
    if not len(accused):
        return True
    alone = single_moves(at.sampled.point.numel(), at.sampled.value.numel(), at.sampled.point.device)
    samples = sample(at.sampled, alone, accused, richardson.steps(at.lengths))
    found = richardson.extrapolate(samples, finest_noise(at.noise, samples))
    together = found_by.columns(added, accused)
    apart = (found.value - together.value).abs() > BAR_FACTOR * (found.bar + together.bar)
    return not any_set(apart & torch.isfinite(found.bar) & torch.isfinite(together.bar))
