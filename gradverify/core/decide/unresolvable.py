"""Claims that no difference can contradict: cancellation, a constant stretch, a slope below the resolution."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Code, Judged
from gradverify.core.estimate.column_groups import owned
from gradverify.core.estimate.nonsmooth import Local
from gradverify.core.estimate.samples import Samples, central, to_the_end, unmoved, void
from gradverify.core.estimate.smoothness import largest_moves
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler, along
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import any_set

_UNITS, _UNITS_OF_BACKWARD = 128.0, 16384.0  # of rounding, at order 1 and 2
_UNITS_BESIDE = 512.0  # of rounding of the steepest slope around, at order 2: stairs as narrow as that show as leaps
_PARTS = (0.25, 0.5, 0.75, 1.0)  # of the way to zero, that all inputs go at once
_HEARD = 64.0  # of these units, and times the scatter: what moves by more is heard
_OFF = 0.5  # of the claim, a difference must be off to show another derivative
_SEVERAL = 3  # steps that show one
_STRETCH_UNITS = 8.0  # of rounding of 1, or of the largest output: what moves by less may stand still
_LOUD = 2.0**24  # units of rounding: noise below is not the function's own variation
_HARDLY = 64.0  # times the noise
_STEEP = 2.0**10  # times what the output was seen to move at most, over the largest step
_FLATTER = 0.25  # a slope steeper than this part of the claim comes from the finest steps itself
_LOST = 0.25  # of the noise: what rises by less is lost in it
_ROUGHLY = 0.5  # how far differences may be off what is claimed
_FEW = 5  # steps as fine as that tell nothing
_AUDIBLE = 8.0  # units of rounding that a rise must have


def below_cancellation_floor(context: JudgingContext, chosen: Tensor, judged: Judged, seen: Tensor) -> Tensor | None:
    """Return per entry what may be left of something that cancels inside, (C, m); None where no error is as small.

    Such rounding can be heard at some distance from the point. That is listened for only where it would change a
    verdict. A term of backward that has saturated is heard nowhere around: its rounding is that of the steepest slope
    within the length scale, as it was `seen` (C, m), or as far as the output moves where other inputs move too.
    """
    wrong = judged.code == Code.MISMATCH
    if not any_set(wrong):
        return None
    faint, beside = _faint(context, chosen), _beside(context, chosen, seen)
    if not any_set(wrong & (judged.error <= torch.maximum(faint, beside))):
        return None
    heard = context.loudest()
    faint = torch.minimum(
        faint, _units(context) * heard / owned(context.column_groups, chosen, own_or_shared(context.lengths))
    )
    return torch.maximum(faint, beside)


def is_too_short_to_tell(context: JudgingContext, samples: Samples, claimed: Tensor, scatter: Tensor) -> Tensor:
    """Tell which outputs stand still only as far as a derivative as claimed could not be told from none; (C, m).

    `scatter` (C, m) is the noise that the samples of each move show.
    """
    sampled, nothing = context.sampled, void(samples)
    tail = to_the_end(unmoved(sampled, samples) | nothing) & ~nothing
    longest = torch.where(tail, torch.maximum(samples.forth, samples.back), 0.0).amax(dim=1)
    rise, stands = claimed.abs() * longest, tail.any(dim=1)
    stair = sampled.stair() if any_set(stands) and sampled.narrow() else 0.0
    short = stands & (rise <= _STRETCH_UNITS * sampled.unit * sampled.size.clamp(min=1.0))
    coarse = stands & (rise <= stair)
    if not any_set(short | coarse):
        return short
    open_ = coarse | (short & (~context.finely() | (rise <= scatter.amax(dim=0))))
    return open_ & ~_contradicted(context, samples, claimed, scatter, stair) if any_set(open_) else open_


def heard(noise: Noise, local: Local) -> Tensor:
    """Return what was taken for noise, before or now; (C, m)."""
    return torch.maximum(noise.loud, local.scatter)


def drowned(sampled: Sampler, noise: Tensor, samples: Samples) -> Tensor:
    """Tell which outputs were seen to move by hardly more than this noise, which may be the function itself; (C, m)."""
    most = _most(sampled, samples)
    return _loud(sampled, noise) & (most > 0) & (most <= _HARDLY * noise)


def unseen(sampled: Sampler, noise: Tensor, samples: Samples, claimed: Tensor, numeric: Tensor) -> Tensor:
    """Tell which claims a flatter slope cannot contradict, since this noise may be the function itself; all (C, m)."""
    loud, most = _loud(sampled, noise), _most(sampled, samples)
    rise = claimed.unsqueeze(1) * samples.forth
    steep = (rise[:, 0].abs() > _STEEP * most) & (numeric.abs() < _FLATTER * claimed.abs())
    fine = (rise.abs() <= _LOST * torch.fmin(noise, most).unsqueeze(1)) & ~void(samples)
    audible = rise.abs() > _AUDIBLE * sampled.unit * sampled.value.abs()
    close = (central(samples) - claimed.unsqueeze(1)).abs() <= _ROUGHLY * claimed.abs().unsqueeze(1)
    shown = fine & audible & close
    twice = (shown[:, 1:] & shown[:, :-1]).any(dim=1)
    return loud & steep & (twice | (fine.sum(dim=1) < _FEW))


def _faint(context: JudgingContext, chosen: Tensor) -> Tensor:
    """Return per entry what rounding of quantities of the output's or the input tensor's size may amount to; (C, m)."""
    sampled = context.sampled
    inputs = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0)
    largest = torch.ones_like(inputs)  # of each coordinate's own tensor
    for block in sampled.inputs:
        own = inputs[block.coordinates]
        largest[block.coordinates] = own.max() if any_set(own > 0) else 1.0
    share = sampled.size.unsqueeze(0) / owned(context.column_groups, chosen, largest)
    # An output far below the rounding of the rounding of the inputs is nothing that is left of them.
    tiny = (share > 0) & (share < sampled.unit.square())
    return _units(context) * sampled.unit * torch.where(tiny, share, share.clamp(min=1.0))


def _beside(context: JudgingContext, chosen: Tensor, seen: Tensor) -> Tensor:
    """Return what rounding of a backward that has saturated may hide of its own derivative; (C, m)."""
    if context.sampled.problem.order == 1:
        return torch.zeros_like(seen)
    steepest = _farthest(context) / owned(context.column_groups, chosen, own_or_shared(context.lengths))
    return _UNITS_BESIDE * context.sampled.unit * torch.maximum(seen, steepest)


def _farthest(context: JudgingContext) -> Tensor:
    """Return how far each output moves while all inputs shrink or move at random within their length, (m,)."""
    generator, length = torch.Generator().manual_seed(0), own_or_shared(context.lengths)
    places = [-part * context.sampled.point for part in _PARTS] + [scattered(length, generator) for _ in _PARTS]
    moved = torch.stack([(along(context.sampled, place) - context.sampled.value).abs() for place in places])
    return moved.nan_to_num(0.0, 0.0, 0.0).amax(dim=0)


def _units(context: JudgingContext) -> float:
    return _UNITS_OF_BACKWARD if context.sampled.problem.order > 1 else _UNITS


def _contradicted(context: JudgingContext, samples: Samples, claimed: Tensor, scatter: Tensor, stair: float) -> Tensor:
    """Tell which claims the steps contradict at which they would be heard; (C, m)."""
    sampled, there = context.sampled, claimed.unsqueeze(1)
    rounded = (sampled.unit * sampled.size.clamp(min=1.0)).clamp(min=stair)
    loud = torch.maximum(_HEARD * rounded, _HEARD * scatter)
    heard = (there.abs() * samples.forth > loud.unsqueeze(1)) & ~void(samples)
    off = (central(samples) - there).abs() > _OFF * there.abs()
    return ((heard & off).sum(dim=1) >= _SEVERAL) & ~(heard & ~off).any(dim=1)


def _loud(sampled: Sampler, noise: Tensor) -> Tensor:
    return noise > _LOUD * sampled.unit * torch.maximum(sampled.value.abs(), sampled.size)


def _most(sampled: Sampler, samples: Samples) -> Tensor:
    """Return by how much each output was seen to move, (C, m)."""
    return largest_moves(sampled, samples).nan_to_num(0.0, 0.0).amax(dim=1)
