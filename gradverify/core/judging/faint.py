"""What rounding may leave in a derivative of something that cancels inside, however steady it looks."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.scale import own_or_shared
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.moves import owned

_UNITS, _UNITS_OF_BACKWARD = 128.0, 16384.0  # of rounding, at order 1 and 2
_UNITS_BESIDE = 32.0  # of rounding of the steepest slope around, at order 2


def excused(at: Bench, chosen: Tensor, judged: Judged, seen: Tensor) -> Tensor | None:
    """Return per entry what may be left of something that cancels inside, (C, m); None where no error is as small.

    Such rounding can be heard at some distance from the point. That is listened for only where it would change a
    verdict. A term of backward that has saturated is heard nowhere around: its rounding is that of the steepest slope
    `seen` (C, m) within the length scale.
    """
    wrong = judged.code == Code.MISMATCH
    if not bool(wrong.any()):
        return None
    faint, beside = _faint(at, chosen), _beside(at, seen)
    if not bool((wrong & (judged.error <= torch.maximum(faint, beside))).any()):
        return None
    heard = at.loudest() if at.sampled.kept is None else at.loudest()[at.sampled.kept]
    faint = torch.minimum(faint, _units(at) * heard / owned(at.moves, chosen, own_or_shared(at.lengths)))
    return torch.maximum(faint, beside)


def _faint(at: Bench, chosen: Tensor) -> Tensor:
    """Return per entry what rounding of quantities of the output's or the input tensor's size may amount to; (C, m)."""
    sampled = at.sampled
    inputs = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0)
    largest = torch.ones_like(inputs)  # of each coordinate's own tensor
    for block in sampled.inputs:
        own = inputs[block.coordinates]
        largest[block.coordinates] = own.max() if bool((own > 0).any()) else 1.0
    share = sampled.size.unsqueeze(0) / owned(at.moves, chosen, largest)
    # An output far below the rounding of the rounding of the inputs is nothing that is left of them.
    tiny = (share > 0) & (share < sampled.unit.square())
    return _units(at) * sampled.unit * torch.where(tiny, share, share.clamp(min=1.0))


def _beside(at: Bench, seen: Tensor) -> Tensor:
    """Return what rounding of a backward that has saturated may hide of its own derivative; (C, m)."""
    return _UNITS_BESIDE * at.sampled.unit * seen if at.sampled.problem.order > 1 else torch.zeros_like(seen)


def _units(at: Bench) -> float:
    return _UNITS_OF_BACKWARD if at.sampled.problem.order > 1 else _UNITS
