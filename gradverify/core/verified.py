"""A structure is believed only after it has been put to the test, on both sides, with fresh random vectors.

Backward: u·A as the entries give it must be the vjp of u. Forward: J·v as the entries give it must be the difference
along a v without small components. And what is accused must be seen again when its coordinate is moved alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core import added as found_by
from gradverify.core import richardson
from gradverify.core.added import Added
from gradverify.core.analytic import Reverse, row
from gradverify.core.columns import Bench
from gradverify.core.compare import BAR_FACTOR
from gradverify.core.moves import Moves, single_moves
from gradverify.core.sampler import along
from gradverify.core.samples import Estimate, sample
from gradverify.core.structure import Structure, confined_dimensions

_VECTORS = 2  # random cotangents
_ROUNDING = 1e-9  # of a sum, relative to the sum of its terms' sizes
_ULPS = 64.0  # of the inputs' own dtype, where that is coarser
_FAINT = 1e-4  # of the largest sum: what rounding elsewhere may leave in a sum of nothing
_FIRST, _CLOSE = 2.0**-12, 2.0**-26  # first steps along a direction, relative to the length scale
_NUDGE = 2.0**-8  # how far they move, relative to the length scale
_CONFIRMED = 6  # accused coordinates that are moved alone


def claims_hold(backward: Reverse, moves: Moves, claimed: Tensor, seed: int) -> bool:
    """Tell whether the claimed entries, and no others, make up backward's answer to random cotangents.

    The second pair of cotangents gives every row the same weight, so that a stray entry is seen beside its own row,
    however small that is beside others.
    """
    if not bool(torch.isfinite(claimed).all()):
        return False
    generator = torch.Generator().manual_seed(seed + 1)
    row_size = claimed.abs().amax(dim=0)
    weights = torch.where(row_size > 0, row_size, 1.0).reciprocal()
    rounding = max(_ROUNDING, _ULPS * max(torch.finfo(primal.tensor.dtype).eps for primal in backward.problem.primals))
    for weight in (torch.ones_like(weights), weights):
        for _ in range(_VECTORS):
            random = torch.randn(len(weight), generator=generator, dtype=torch.float64).to(claimed.device)
            if not _claims_hold(backward, moves, claimed, random * weight, rounding):
                return False
    return True


def _claims_hold(backward: Reverse, moves: Moves, claimed: Tensor, cotangent: Tensor, rounding: float) -> bool:
    answer = row(backward, cotangent)
    terms = torch.where(moves.owner >= 0, claimed * cotangent, 0.0)
    total = _by_owner(moves, terms, len(answer))
    size = _by_owner(moves, terms.abs(), len(answer))
    return bool(((answer - total).abs() <= rounding * (size + _FAINT * size.max())).all())


def differences_hold(at: Bench, added: Added, seed: int) -> bool:
    """Tell whether the measured entries, and no others, make up the differences along random directions."""
    if found_by.strays(added):
        return False
    generator = torch.Generator().manual_seed(seed + 2)
    size = torch.rand(at.sampled.point.shape, generator=generator, dtype=torch.float64) + 0.5
    sign = torch.where(torch.rand(size.shape, generator=generator) < 0.5, -1.0, 1.0)
    direction = (size * sign).to(at.sampled.point.device) * at.lengths.step
    total, judged = found_by.along(added, direction), found_by.smooth(added)
    off = judged & _off(at, direction, total, _FIRST)
    # A kink between the point and the end of a step looks like a dependence; a true one is there at any step.
    return not bool(off.any()) or not bool((off & _off(at, direction, total, _CLOSE)).any())


def pattern_holds(at: Bench, added: Added, structure: Structure, seed: int) -> bool:
    """Tell whether outputs stay bit for bit the same while coordinates move that should not reach them.

    Asked where outputs with a kink cannot be added up, so that `differences_hold` has nothing to say of them. First all
    coordinates move but those that own such an output; then, dimension by dimension, the slices whose number has a
    certain bit, and those that have it not, which keeps every two slices apart once.
    """
    rough = ~found_by.smooth(added)
    if not bool(rough.any()):
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
    size = torch.rand(moving.shape, generator=generator, dtype=torch.float64) + 0.5
    sign = torch.where(torch.rand(moving.shape, generator=generator) < 0.5, -1.0, 1.0)
    displacement = (size * sign).to(moving.device) * at.lengths.step * _NUDGE
    there = along(at.sampled, torch.where(moving, displacement, 0.0))
    reached = (moving[at.moves.owner.clamp(min=0)] & (at.moves.owner >= 0)).any(dim=0)
    return bool((reached | (there == at.sampled.value) | ~torch.isfinite(at.sampled.value)).all())


def accusations_hold(at: Bench, added: Added) -> bool:
    """Tell whether accused coordinates, moved alone, give the same derivatives as moved together with others."""
    accused = found_by.accused(added, _CONFIRMED)
    if not len(accused):
        return True
    alone = single_moves(at.sampled.point.numel(), at.sampled.value.numel(), at.sampled.point.device)
    samples = sample(at.sampled, alone, accused, richardson.steps(at.lengths.step))
    found = richardson.extrapolate(at.sampled, at.noise, samples)
    together = found_by.columns(added, accused)
    apart = (found.value - together.value).abs() > BAR_FACTOR * (found.bar + together.bar)
    return not bool((apart & torch.isfinite(found.bar) & torch.isfinite(together.bar)).any())


def _off(at: Bench, direction: Tensor, total: Estimate, first: float) -> Tensor:
    """Tell which outputs change otherwise along a direction than the entries add up to, (m,)."""
    found = _slope(at, direction, first)
    allowed = BAR_FACTOR * (found.bar + total.bar) + _ROUNDING * total.value.abs()
    return ((found.value - total.value).abs() > allowed) & torch.isfinite(found.bar)


def _slope(at: Bench, direction: Tensor, largest: float) -> Estimate:
    """Return the derivative of every output along a direction, (m,), from three steps, the first of which is given."""
    steps = [largest * 0.5**k for k in range(richardson.DEPTH)]
    values = [(along(at.sampled, direction * s) - along(at.sampled, direction * -s)) / (2 * s) for s in steps]
    first, second = ((4 * values[k + 1] - values[k]) / 3 for k in range(2))
    value = (16 * second - first) / 15
    noise = BAR_FACTOR * at.noise.level / steps[-1]
    bar = (value - second).abs() + noise
    return Estimate(value=value, bar=torch.where(torch.isfinite(bar), bar, torch.inf))


def _by_owner(moves: Moves, values: Tensor, coordinates: int) -> Tensor:
    found = torch.zeros(coordinates, dtype=values.dtype, device=values.device)
    return found.index_add_(0, moves.owner.clamp(min=0).reshape(-1), values.reshape(-1))
