"""What rounding may leave in a derivative of something that cancels inside, however steady it looks."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered
from gradverify.core.function.flags import any_set
from gradverify.core.function.sampler import along
from gradverify.core.function.scale import own_or_shared
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.moves import owned

_UNITS, _UNITS_OF_BACKWARD = 128.0, 16384.0  # of rounding, at order 1 and 2
_UNITS_BESIDE = 512.0  # of rounding of the steepest slope around, at order 2: stairs as narrow as that show as leaps
_PARTS = (0.25, 0.5, 0.75, 1.0)  # of the way to zero, that all inputs go at once


def excused(at: Bench, chosen: Tensor, judged: Judged, seen: Tensor) -> Tensor | None:
    """Return per entry what may be left of something that cancels inside, (C, m); None where no error is as small.

    Such rounding can be heard at some distance from the point. That is listened for only where it would change a
    verdict. A term of backward that has saturated is heard nowhere around: its rounding is that of the steepest slope
    within the length scale, as it was `seen` (C, m), or as far as the output moves where other inputs move too.
    """
    wrong = judged.code == Code.MISMATCH
    if not any_set(wrong):
        return None
    faint, beside = _faint(at, chosen), _beside(at, chosen, seen)
    if not any_set(wrong & (judged.error <= torch.maximum(faint, beside))):
        return None
    heard = at.loudest()
    faint = torch.minimum(faint, _units(at) * heard / owned(at.moves, chosen, own_or_shared(at.lengths)))
    return torch.maximum(faint, beside)


def _faint(at: Bench, chosen: Tensor) -> Tensor:
    """Return per entry what rounding of quantities of the output's or the input tensor's size may amount to; (C, m)."""
    sampled = at.sampled
    inputs = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0)
    largest = torch.ones_like(inputs)  # of each coordinate's own tensor
    for block in sampled.inputs:
        own = inputs[block.coordinates]
        largest[block.coordinates] = own.max() if any_set(own > 0) else 1.0
    share = sampled.size.unsqueeze(0) / owned(at.moves, chosen, largest)
    # An output far below the rounding of the rounding of the inputs is nothing that is left of them.
    tiny = (share > 0) & (share < sampled.unit.square())
    return _units(at) * sampled.unit * torch.where(tiny, share, share.clamp(min=1.0))


def _beside(at: Bench, chosen: Tensor, seen: Tensor) -> Tensor:
    """Return what rounding of a backward that has saturated may hide of its own derivative; (C, m)."""
    if at.sampled.problem.order == 1:
        return torch.zeros_like(seen)
    steepest = _farthest(at) / owned(at.moves, chosen, own_or_shared(at.lengths))
    return _UNITS_BESIDE * at.sampled.unit * torch.maximum(seen, steepest)


def _farthest(at: Bench) -> Tensor:
    """Return how far each output moves while all inputs shrink or move at random within their length, (m,)."""
    generator, length = torch.Generator().manual_seed(0), own_or_shared(at.lengths)
    places = [-part * at.sampled.point for part in _PARTS] + [scattered(length, generator) for _ in _PARTS]
    moved = torch.stack([(along(at.sampled, place) - at.sampled.value).abs() for place in places])
    return moved.nan_to_num(0.0, 0.0, 0.0).amax(dim=0)


def _units(at: Bench) -> float:
    return _UNITS_OF_BACKWARD if at.sampled.problem.order > 1 else _UNITS
