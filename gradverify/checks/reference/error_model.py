"""How far a right function may be from its reference, without a tolerance to choose.

The reference is evaluated in float64 at the numbers that the function gets. Its conditioning is measured: every input
and cotangent is moved by up to half an ulp of the function's dtype, at random, and the reference is evaluated again.
The scale of an entry's rounding error is

    s = ½ ulp(entry) + rms of its changes under these nudges + rounding on the way + ¼ eps · rms of the tensor,

where the rounding of results on the way is measured in noisy arithmetic. The last term is for algorithms that mix
entries, as a Fourier transform does. Where the reference jumps at the point (`jumps`), s is the height of the jump.
A tensor is wrong if its largest error in units of s, the rms of all errors in units of s, or the common factor
<error, reference> / <reference, reference> is more than F times what the nudges show. F is 4 for dtypes whose sums are
accumulated in float32 and 64 for those accumulated in their own precision, where rounding grows as the square root of
the number of terms. A tensor that zeros would agree with is not judged, unless it is zero but for rounding of float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.checks.reference.finiteness import Sample, can_hold, cannot_judge, differ_in_finiteness
from gradverify.checks.reference.magnitudes import (
    common_factor,
    largest_of,
    median_of,
    moduli,
    pooled,
    rms_of,
)
from gradverify.core.tuning import CANCELLATION_UNITS

# Measured on right kernels, 55 in float32 and 57 in bfloat16: the largest errors were 27 and 2.6 times those of nudges.
_FACTOR, _FACTOR_LOW = 64.0, 4.0
_TERMS = 2048  # terms of a sum up to which 64 was measured; beyond, rounding of a sequential sum grows as their root
_LOW = 2.0**-10  # eps from which on sums are accumulated in float32
_MIXED = 0.25  # eps of the tensor's rms that every entry may be off by
_SHARED = 2.0  # times the common factor that noisy arithmetic shows: it is a few samples
_RMS = 0.5  # rms of errors in units of s that are allowed, times F: rounding to the dtype alone shows 0.58 at most
TF32_EPS = 2.0**-10  # of the inputs of a matrix product in TF32
_EPS32, _EPS64 = torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The precision that a function computes in."""

    name: str  # float32, bfloat16, tf32
    eps: float  # distance from 1 to the next number
    least: float  # absolute error that is always allowed: smaller numbers may be flushed to zero


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTensor:
    """The judgement on one tensor."""

    error: Tensor  # (n,) |value - exact|; inf where `not_finite`
    allowed: Tensor  # (n,) largest error that is accepted
    ulps: Tensor  # (n,) error in ulps of the reference's value
    wrong: Tensor  # (n,) bool
    not_finite: Tensor  # (n,) bool, True where one of value and reference is finite and the other not
    unjudged: Tensor  # (n,) bool, True where the reference cannot judge: it is NaN, or not finite close by
    lost: bool  # True if rounding explains errors as large as the tensor: zeros would not be wrong either
    factor: float  # common factor of the errors, <error, reference> / <reference, reference>
    by_factor: bool  # True if only the common factor is too large, and no single entry
    entry_limit: float  # relative error of an entry of median size that would be found
    factor_limit: float  # common factor that would be found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """The errors of one tensor beside what is accepted."""

    error: Tensor  # (n,) magnitudes
    allowed: Tensor  # (n,)
    wrong: Tensor  # (n,) bool
    factor: float  # common factor
    by_factor: bool  # True if only the common factor is too large


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What is accepted of one tensor."""

    scale: Tensor  # (n,) s
    scale_of_zeros: Tensor  # (n,) s without the rounding of other entries, which makes no entry zero
    largest: float  # error of an entry in units of s
    rms: float  # of all errors in units of s
    factor: float  # common factor of the errors


def precision_of(dtypes: Sequence[torch.dtype], *, tf32: bool = False) -> Precision:
    """Return the coarsest precision among the dtypes; float32 counts as TF32 if that is switched on."""
    coarsest = max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)
    limits = torch.finfo(coarsest)
    name = str(coarsest).removeprefix("torch.")
    # float16 keeps its subnormal numbers on every device.
    least = limits.smallest_normal * (limits.eps if coarsest is torch.float16 else 1.0)
    if tf32 and limits.eps == _EPS32:
        return Precision(name="tf32", eps=TF32_EPS, least=least)
    return Precision(name=name, eps=limits.eps, least=least)


def ulp(sizes: Tensor, precision: Precision) -> Tensor:
    """Return the distance from each magnitude to the next number of this precision; at least `least`."""
    _, exponent = torch.frexp(sizes)
    widths = torch.exp2(exponent.to(torch.float64)).mul_(precision.eps / 2)
    return widths.masked_fill_(sizes == 0, 0.0).clamp_(min=precision.least)  # frexp gives zero the exponent of 1/2


def judge_tensor(sample: Sample, precision: Precision, terms: int) -> JudgedTensor:
    """Judge one tensor; `terms` bounds the number of terms of its sums."""
    held = can_hold(sample)
    unknown = cannot_judge(sample, held)
    judged, unit = _in_units_of_largest(_with_zeros(sample, unknown | ~held | ~sample.value.isfinite()), precision)
    inside = replace(precision, least=precision.least / unit)
    size = moduli(judged.exact, judged.like)
    limits = _limits(judged, size, inside, terms)
    found = _errors(judged, judged.value, size, limits)
    is_zero = largest_of(size) <= max(inside.least, CANCELLATION_UNITS * _EPS64 * _largest_noise(judged))
    zeros = torch.zeros_like(judged.value)
    lost = not is_zero and not bool(_errors(judged, zeros, size, limits).wrong.any())
    nonzero, rounded = size > 0, _is_rounded(sample, limits, precision)
    not_finite = differ_in_finiteness(sample, held, rounded)
    return JudgedTensor(
        error=(found.error * unit).masked_fill_(not_finite, math.inf),
        allowed=found.allowed * unit,
        ulps=(found.error / ulp(size, inside)).masked_fill_(not_finite, math.inf),
        wrong=found.wrong | not_finite,
        not_finite=not_finite,
        unjudged=unknown & ~not_finite & ~rounded,
        lost=lost,
        factor=found.factor,
        by_factor=found.by_factor,
        entry_limit=median_of(limits.largest * limits.scale[nonzero] / size[nonzero]),
        factor_limit=limits.factor,
    )


def _errors(judged: Sample, value: Tensor, size: Tensor, limits: _Limits) -> _Errors:
    """Return the errors of `value`; `size` holds the magnitudes of the reference."""
    error = value - judged.exact
    factor = common_factor(error.masked_fill(judged.jump > 0, 0.0), judged.exact)
    error = error.abs()
    ratio = error / limits.scale
    allowed = limits.largest * torch.where(value == 0, limits.scale_of_zeros, limits.scale)
    wrong = error > allowed
    by_factor = False
    if not bool(wrong.any()):
        by_factor = abs(factor) > limits.factor
        if rms_of(ratio) > limits.rms:
            wrong, allowed = ratio > limits.rms, limits.rms * limits.scale
        elif by_factor:
            allowed = limits.factor * size
            wrong = error > allowed
    return _Errors(error=error, allowed=allowed, wrong=wrong, factor=factor, by_factor=by_factor)


def error_factor(precision: Precision, terms: int) -> float:
    """Return F: how many times the errors that nudges show a right function may have."""
    return _FACTOR_LOW if precision.eps >= _LOW else _accumulated(terms)


def _accumulated(terms: int) -> float:
    """Return F for sums of so many terms that are accumulated in the precision of the errors."""
    return _FACTOR * math.sqrt(max(1.0, terms / _TERMS))


def _is_rounded(sample: Sample, limits: _Limits, precision: Precision) -> Tensor:
    """Return (n,) bool, True where the value is the reference's to within rounding of the result, without nudges."""
    half = ulp(moduli(sample.exact, sample.like), precision) / 2
    return (sample.value - sample.exact).abs() <= limits.largest * half


def _with_zeros(sample: Sample, left_out: Tensor) -> Sample:
    """Return the sample with zeros for the entries that are left out of the judgement."""
    if not bool(left_out.any()):
        return sample
    return replace(
        sample,
        value=sample.value.masked_fill(left_out, 0.0),
        exact=sample.exact.masked_fill(left_out, 0.0),
        nudged=tuple(each.masked_fill(left_out, 0.0) for each in sample.nudged),
        noisy=tuple(each.masked_fill(left_out, 0.0) for each in sample.noisy),
        jittered=sample.jittered.masked_fill(left_out, 0.0),
        jump=sample.jump.masked_fill(left_out, 0.0),
    )


def _in_units_of_largest(sample: Sample, precision: Precision) -> tuple[Sample, float]:
    """Return the sample divided by a power of two near its largest entry, or its noise, whose square may overflow.

    Noise may be far larger: the gradient by the logits of a saturated softmax is rounding alone, or underflows.
    """
    largest = max(largest_of(sample.exact), precision.eps * _largest_noise(sample))
    unit = 2.0 ** math.frexp(largest)[1] / 2 if largest else 1.0
    scaled = replace(
        sample,
        value=sample.value / unit,
        exact=sample.exact / unit,
        nudged=tuple(each / unit for each in sample.nudged),
        noisy=tuple(each / unit for each in sample.noisy),
        jittered=sample.jittered / unit,
        jump=sample.jump / unit,
    )
    return scaled, unit


def _largest_noise(sample: Sample) -> float:
    """Return the largest change by rounding, in units of its eps."""
    return max(map(largest_of, (*sample.noisy, sample.jittered)))


def _limits(sample: Sample, size: Tensor, precision: Precision, terms: int) -> _Limits:
    factor = error_factor(precision, terms)
    changes = torch.stack(sample.nudged).sub_(sample.exact).masked_fill_(sample.jump > 0, 0.0)
    shown = max(abs(common_factor(change, sample.exact)) for change in changes)
    rounded = _SHARED * precision.eps * max(abs(common_factor(each, sample.exact)) for each in sample.noisy)
    squares = changes.square_().mean(dim=0)
    scale = _scale(sample, squares, size, precision)
    return _Limits(
        scale=scale,
        scale_of_zeros=scale - _MIXED * precision.eps * rms_of(size),
        largest=factor * max(1.0, *(largest_of(square.sqrt() / scale) for square in changes)),
        rms=factor * max(_RMS, *(float((square / scale.square()).mean().sqrt()) for square in changes)),
        factor=max(rounded, _factor_limit(sample.exact, scale - sample.jump, shown, precision, terms)),
    )


def _scale(sample: Sample, squares: Tensor, size: Tensor, precision: Precision) -> Tensor:
    """Return s, (n,); `squares` is the mean of the squared changes under nudges."""
    scale = pooled(squares, sample.like).add_(ulp(size, precision), alpha=0.5)
    if precision.eps >= _LOW:  # beside F = 64, the rounding of single results is small
        noise = torch.stack(sample.noisy).square_().mean(dim=0)
        scale.add_(pooled(noise, sample.like), alpha=precision.eps)
    return scale.add_(_floor(sample, size, precision)).add_(sample.jump)


def _floor(sample: Sample, size: Tensor, precision: Precision) -> float:
    """Return the part of s that all entries of a tensor share.

    Beside the rounding of other entries it is rounding that cancels, which nudges of inputs do not show: the gradient
    of a bias in front of a normalisation is zero at any point. Sums are rounded in the precision of accumulation, and
    intermediate results in the function's own, as far as that leaves no digit.
    """
    largest, noise = largest_of(size), (*sample.noisy, sample.jittered)
    accumulated = max(map(rms_of, noise)) * min(precision.eps, _EPS32)
    stored = max(map(largest_of, noise)) * precision.eps
    lost = min(1.0, stored / largest) if largest else 1.0
    return _MIXED * precision.eps * rms_of(size) + max(accumulated, stored * lost)


def _factor_limit(exact: Tensor, scale: Tensor, shown: float, precision: Precision, terms: int) -> float:
    """Return the common factor up to which errors are accepted; `shown` is the one that nudges show.

    Independent errors of size s show one too. Beside them, a number that all entries share, as the statistic of a
    single row, may be rounded in the dtype and summed in the precision of accumulation.
    """
    square = float(exact @ exact)
    independent = float((scale * exact).square_().sum()) ** 0.5 / square if square else 0.0
    accumulated = _accumulated(terms) * min(precision.eps, _EPS32)
    return max(precision.eps, accumulated, error_factor(precision, terms) * max(shown, independent))
