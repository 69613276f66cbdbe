"""Straight-through estimator: a nonzero gradient of a piecewise constant function (rounding, sign, threshold).

The derivative of such a function is zero almost everywhere, so its backward usually returns something else on purpose.
A spec declares that with `surrogate`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import all_set, finite_size
from gradverify.diagnosis.block.elsewhere import outputs_at
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.relation import claims_in_words
from gradverify.diagnosis.naming.variables import input_and_output_values
from gradverify.diagnosis.naming.wording import differ_text
from gradverify.evidence import Diagnosis, Evidence

STRAIGHT_THROUGH = "straight-through"
_DISTANCES, _REPEATS = (0.3, 1.0, 3.0), 4  # random places: distances relative to the input, and samples of each
_INTERPOLATIONS = 16  # random places between two entries of the point, or between an entry and zero
_STEP = 2.0**-30  # relative step at each place
_MAX_CHANGED = 0.02  # share of the outputs that may change in such a step: a jump may lie within it
_MIN_DIFFERING = 0.3  # share of the wrong outputs that have to differ between places


def straight_through(seen: BlockEntries) -> Diagnosis | None:
    """Detect a nonzero gradient of outputs that are piecewise constant: zero derivative, here and at other points.

    A piecewise linear function, such as a relu, does not qualify: its outputs change in small steps elsewhere.
    """
    block, wrong = seen.block, seen.wrong.any(1)
    if block.backward.problem.order > 1 or not all_set(seen.zero) or not _is_piecewise_constant(block, wrong):
        return None
    claims = claims_in_words(seen.multiple_of_cotangent(seen.wrong.any(0)))
    text = f"{differ_text(int(wrong.sum()), len(wrong), 'elements')}; {block.of.name} moves in jumps only, {claims}:"
    text += " a straight-through estimator; where it is meant, `surrogate` names the function that backward is for"
    return Diagnosis(cause=STRAIGHT_THROUGH, explanation=text, share=1.0)


def _is_piecewise_constant(evidence: Evidence, wrong: Tensor) -> bool:
    """True if the outputs are constant over small steps at random places, and differ between these places."""
    generator = torch.Generator().manual_seed(0)
    point = input_and_output_values(evidence)[0][evidence.wrt.coordinates].to(torch.float64)
    size = finite_size(point)
    length = torch.where(size > 0, size, 1.0).clamp(min=float(size.max()) or 1.0)
    nearby = [
        point + distance * random_magnitudes(length, generator) for distance in _DISTANCES for _ in range(_REPEATS)
    ]
    interpolated = [_interpolated(point, number % 2, generator) for number in range(_INTERPOLATIONS)]
    found, changed = [], []
    for place in (*nearby, *interpolated):
        step = random_magnitudes(_STEP * length, generator)
        outputs, stepped = (outputs_at(evidence, at) for at in (place, place + step))
        if outputs is not None and stepped is not None:  # both are inside the domain
            found.append(outputs)
            changed.append(outputs != stepped)
    if len(found) < _REPEATS:
        return False
    differs = (torch.stack(found) != found[0]).any(dim=0) & wrong
    is_constant = float(torch.stack(changed).double().mean()) <= _MAX_CHANGED
    return is_constant and int(differs.sum()) >= _MIN_DIFFERING * int(wrong.sum())


def _interpolated(point: Tensor, towards_zero: int, generator: torch.Generator) -> Tensor:
    """Return a random place between pairs of the point's entries, or between each and zero: likely in the domain."""
    share = torch.rand(point.shape, generator=generator, dtype=point.dtype).to(point.device)
    other = point[torch.randperm(len(point), generator=generator).to(point.device)]
    return point * share if towards_zero else torch.lerp(point, other, share)
