"""Claims that differences cannot refute: cancellation, a short constant stretch, a slope hidden by noise."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Code, Judged
from gradverify.core.estimate.column_groups import value_of_column
from gradverify.core.estimate.nonsmooth import LadderResult
from gradverify.core.estimate.samples import Samples, central_differences, is_vanished
from gradverify.core.estimate.smoothness import constant_tail, largest_changes
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.noise import Noise, largest_change
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import any_set, largest_in_tensor

_UNITS, _UNITS_OF_BACKWARD = 128.0, 16384.0  # units of rounding that cancellation may leave, at orders 1 and 2
_UNITS_OF_SLOPE = 512.0  # units of rounding of the steepest slope nearby, at order 2
_DISPLACEMENTS = 4  # random displacements of all inputs together
_SIGNIFICANT = 64.0  # units of rounding, and times the scatter: least significant change of an output
_AGREES = 0.5  # of the claim: a difference this near agrees with it, any other contradicts it
_CONTRADICTIONS = 3  # steps that must contradict the claim
_STRETCH_UNITS = 8.0  # units of rounding of 1 or of the largest output: smaller changes may be rounded away
_HIGH_NOISE = 2.0**24  # units of rounding: only noise above this may be variation of the function
_DOMINATED = 64.0  # times the noise: an output that changes by less is dominated by it
_TOO_STEEP = 2.0**10  # times the largest observed change: a steeper claim, over the largest step, is too steep
_FLATTER = 0.25  # of the claim: a steeper numeric slope refutes it in spite of the noise
_WITHIN_NOISE = 0.25  # of the noise and the observed change: the claimed change at a fine step is below this
_FEW_STEPS = 5  # fine steps that are needed to refute a claim
_SIGNIFICANT_UNITS = 8.0  # units of rounding: least significant change of an output


def below_cancellation_floor(context: JudgingContext, chosen: Tensor, judged: Judged, seen: Tensor) -> Tensor | None:
    """Return the error that cancellation in the forward may cause, (C, m); None if every mismatch exceeds it.

    Such rounding shows as noise at some distance from the point, which is measured only if it may change a verdict. A
    saturated term of backward shows no noise: its rounding is relative to the steepest slope within the length scale,
    either the one `seen` (C, m) at the steps, or the change of the output if other inputs are displaced too.
    """
    wrong = judged.code == Code.MISMATCH
    if not any_set(wrong):
        return None
    cancellation, saturation = _cancellation_error(context, chosen), _saturation_error(context, chosen, seen)
    if not any_set(wrong & (judged.error <= torch.maximum(cancellation, saturation))):
        return None
    length = value_of_column(context.column_groups, chosen, own_or_shared(context.lengths))
    noise = _cancellation_units(context) * context.lasting_noise() / length
    return torch.maximum(torch.minimum(cancellation, noise), saturation)


def is_too_short_to_tell(context: JudgingContext, samples: Samples, claimed: Tensor, scatter: Tensor) -> Tensor:
    """Mask of outputs whose constant stretch is too short to distinguish the claimed slope from zero; (C, m).

    `scatter` (C, m) is the noise in the samples of each column group.
    """
    sampled, tail = context.sampled, constant_tail(context.sampled, samples)
    longest = torch.where(tail, torch.maximum(samples.forth, samples.back), 0.0).amax(dim=1)
    rise, constant = claimed.abs() * longest, tail.any(dim=1)
    stair = sampled.rounding_size() if any_set(constant) and sampled.rounding_eps() else 0.0
    short = constant & (rise <= _STRETCH_UNITS * sampled.unit * sampled.size.clamp(min=1.0))
    coarse = constant & (rise <= stair)
    if not any_set(short | coarse):
        return short
    candidates = coarse | (short & (~context.changes_at_small_steps() | (rise <= scatter.amax(dim=0))))
    return candidates & ~_contradicted(context, samples, claimed, scatter, stair) if any_set(candidates) else candidates


def largest_noise(noise: Noise, local: LadderResult) -> Tensor:
    """Return the larger of the measured noise and the scatter of the samples; (C, m)."""
    return torch.maximum(noise.upper_level, local.scatter)


def dominated_by_noise(sampled: Sampler, noise: Tensor, samples: Samples) -> Tensor:
    """Mask of outputs that change by hardly more than this noise, which may be variation of the function; (C, m)."""
    change = _observed_change(sampled, samples)
    return _may_be_variation(sampled, noise) & (change > 0) & (change <= _DOMINATED * noise)


def is_too_steep_to_refute(
    sampled: Sampler, noise: Tensor, samples: Samples, claimed: Tensor, numeric: Tensor
) -> Tensor:
    """Mask of claims too steep to refute by a flatter slope: the noise may be variation of the function; all (C, m)."""
    high_noise, change = _may_be_variation(sampled, noise), _observed_change(sampled, samples)
    rise = claimed.unsqueeze(1) * samples.forth
    steep = (rise[:, 0].abs() > _TOO_STEEP * change) & (numeric.abs() < _FLATTER * claimed.abs())
    fine = (rise.abs() <= _WITHIN_NOISE * torch.fmin(noise, change).unsqueeze(1)) & ~is_vanished(samples)
    significant = rise.abs() > _SIGNIFICANT_UNITS * sampled.unit * sampled.value.abs()
    agrees = (central_differences(samples) - claimed.unsqueeze(1)).abs() <= _AGREES * claimed.abs().unsqueeze(1)
    supports = fine & significant & agrees
    twice = (supports[:, 1:] & supports[:, :-1]).any(dim=1)
    return high_noise & steep & (twice | (fine.sum(dim=1) < _FEW_STEPS))


def _cancellation_error(context: JudgingContext, chosen: Tensor) -> Tensor:
    """Return the error due to rounding of quantities as large as the output or the input's tensor; (C, m)."""
    sampled, largest = context.sampled, largest_in_tensor(context.sampled.point, context.sampled.inputs)
    size = value_of_column(context.column_groups, chosen, torch.where(largest > 0, largest, 1.0))
    return _cancellation_units(context) * sampled.unit * (sampled.size / size).clamp(min=1.0)


def _saturation_error(context: JudgingContext, chosen: Tensor, seen: Tensor) -> Tensor:
    """Return the rounding error of a saturated backward, relative to the steepest slope; 0 at order 1; (C, m)."""
    if context.sampled.problem.order == 1:
        return torch.zeros_like(seen)
    length = own_or_shared(context.lengths)
    change = largest_change(context.sampled, length, _DISPLACEMENTS)
    steepest = change / value_of_column(context.column_groups, chosen, length)
    return _UNITS_OF_SLOPE * context.sampled.unit * torch.maximum(seen, steepest)


def _cancellation_units(context: JudgingContext) -> float:
    """Return the units of rounding that cancellation may leave at this order."""
    return _UNITS_OF_BACKWARD if context.sampled.problem.order > 1 else _UNITS


def _contradicted(context: JudgingContext, samples: Samples, claimed: Tensor, scatter: Tensor, stair: float) -> Tensor:
    """Mask of claims that several steps with a significant claimed change contradict and none supports; (C, m)."""
    slope = claimed.unsqueeze(1)
    rounded = (context.sampled.unit * context.sampled.size.clamp(min=1.0)).clamp(min=stair)
    threshold = _SIGNIFICANT * torch.maximum(rounded, scatter)
    significant = (slope.abs() * samples.forth > threshold.unsqueeze(1)) & ~is_vanished(samples)
    contradicts = (central_differences(samples) - slope).abs() > _AGREES * slope.abs()
    return ((significant & contradicts).sum(dim=1) >= _CONTRADICTIONS) & ~(significant & ~contradicts).any(dim=1)


def _may_be_variation(sampled: Sampler, noise: Tensor) -> Tensor:
    """Mask of noise so high above rounding that it may be variation of the function; (C, m)."""
    return noise > _HIGH_NOISE * sampled.unit * torch.maximum(sampled.value.abs(), sampled.size)


def _observed_change(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the largest observed change of each output, (C, m)."""
    return largest_changes(sampled, samples).nan_to_num(0.0, 0.0).amax(dim=1)
