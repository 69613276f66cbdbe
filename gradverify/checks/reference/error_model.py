"""How far a right function may be from its reference, without a tolerance to guess.

The reference is evaluated in float64 at the numbers that the function gets. Its conditioning is measured: every input
and cotangent is moved by up to half an ulp of the function's dtype, at random, and the reference is evaluated again.
The scale of an entry's rounding error is

    s = ½ ulp(entry) + rms of its changes under these nudges + ¼ eps · largest entry of the tensor.

A tensor is wrong if its largest error in units of s, the rms of all errors in units of s, or the common factor
<error, reference> / <reference, reference> is more than F times what the nudged reference itself shows once it is
rounded to the dtype. F is 4 for dtypes whose sums are accumulated in float32 and 64 for those accumulated in their own
precision, where rounding grows as the square root of the number of terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Measured on right kernels, 55 in float32 and 57 in bfloat16: the largest errors were 27 and 2.6 times those of nudges.
_FACTOR, _FACTOR_LOW = 64.0, 4.0
_TERMS = 2048  # terms of a sum up to which 64 was measured; beyond, rounding of a sequential sum grows as their root
_LOW = 2.0**-10  # eps from which on sums are accumulated in float32
_LARGEST = 0.25  # eps of the tensor's largest entry that every entry may be off by
_POOLED = 0.25  # rms of a row's nudges that each of its entries has at least: four nudges may be small by accident
_RMS = 0.5  # rms of errors in units of s that are always allowed, times F: rounding alone shows up to 0.58
TF32_EPS = 2.0**-10  # of the inputs of a matrix product in TF32
_EPS32 = torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The precision that a function computes in."""

    name: str  # float32, bfloat16, tf32
    eps: float  # distance from 1 to the next number
    least: float  # absolute error that is always allowed: smaller numbers may be flushed to zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One tensor as the function and its reference computed it, as real coordinates in float64."""

    value: Tensor  # (n,) by the function
    exact: Tensor  # (n,) by the reference
    nudged: tuple[Tensor, ...]  # each (n,), by the reference at nudged inputs and cotangents
    noise: tuple[Tensor, ...]  # each (n,), changes of the reference by rounding alone, relative to its unit of rounding
    like: Tensor  # the function's tensor: shape, dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The judgement on one tensor."""

    error: Tensor  # (n,) |value - exact|; inf where only the value is not finite
    allowed: Tensor  # (n,) largest error that is accepted
    ulps: Tensor  # (n,) error in ulps of the reference's value
    wrong: Tensor  # (n,) bool
    not_finite: Tensor  # (n,) bool, True where the value is not finite and the reference is
    factor: float  # common factor of the errors, <error, reference> / <reference, reference>
    by_factor: bool  # True if only the common factor is too large, and no single entry
    entry_limit: float  # relative error of an entry of median size that would be found
    factor_limit: float  # common factor that would be found


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
    return (precision.eps / 2 * torch.exp2(exponent.to(torch.float64))).clamp_(min=precision.least)


def verified(sample: Sample, precision: Precision, terms: int, rounded: Callable[[Tensor], Tensor]) -> Verified:
    """Judge one tensor; `terms` bounds the number of terms of its sums, `rounded` rounds to its dtype."""
    exact, factor = sample.exact, error_factor(precision, terms)
    judged = exact.isfinite() & (rounded(exact).isfinite())
    exact = exact.masked_fill(~judged, 0.0)
    size = _modulus(exact, sample.like)
    scale = _scale(sample, exact, size, judged, precision)
    ideal = [
        (rounded(each) - exact).nan_to_num(0.0, 0.0, 0.0).masked_fill(~judged | ~scale.isfinite(), 0.0)
        for each in sample.nudged
    ]
    not_finite = judged & ~sample.value.isfinite()
    error = (sample.value - exact).masked_fill(~judged, 0.0).nan_to_num(math.inf, math.inf, -math.inf)
    ratio = (error / scale).abs()
    largest = factor * max([1.0, *(_largest(each / scale) for each in ideal)])
    spread = factor * max([_RMS, *(_rms(each / scale) for each in ideal)])
    common, common_limit = _common(error, exact, scale), _common_limit(ideal, exact, scale, precision, terms)
    allowed = largest * scale
    wrong = ratio > largest
    by_factor = False
    if not bool(wrong.any()) and _rms(ratio) > spread:
        wrong, allowed = ratio > spread, spread * scale
    elif not bool(wrong.any()) and abs(common) > common_limit:
        by_factor, allowed = True, common_limit * size
        wrong = error.abs() > allowed
    return Verified(
        error=error.abs(),
        allowed=allowed,
        ulps=error.abs() / ulp(size, precision),
        wrong=wrong | not_finite,
        not_finite=not_finite,
        factor=common,
        by_factor=by_factor,
        entry_limit=_median((largest * scale / size)[judged & (size > 0)]),
        factor_limit=common_limit,
    )


def error_factor(precision: Precision, terms: int) -> float:
    """Return F: how many times the errors that nudges show a right function may have."""
    if precision.eps >= _LOW:
        return _FACTOR_LOW
    return _FACTOR * math.sqrt(max(1.0, terms / _TERMS))


def _scale(sample: Sample, exact: Tensor, size: Tensor, judged: Tensor, precision: Precision) -> Tensor:
    """Return s, (n,); inf where a nudged reference is not finite, as at the edge of a domain."""
    changes = torch.stack([each - exact for each in sample.nudged])
    squares = changes.square().mean(dim=0).masked_fill(~judged, 0.0).nan_to_num(math.inf, math.inf)
    pooled = _row_mean(squares.masked_fill(squares.isinf(), 0.0), sample.like)
    nudges = torch.maximum(squares, _POOLED**2 * pooled).sqrt()
    return ulp(size, precision) / 2 + nudges + _floor(sample, size, judged, precision)


def _floor(sample: Sample, size: Tensor, judged: Tensor, precision: Precision) -> float:
    """Return the part of s that all entries of a tensor share.

    Beside the rounding of the largest entry it is the rounding of intermediate results, which nudges of inputs do not
    show if it cancels: the gradient of a bias in front of a normalisation is zero at any point. Sums are rounded in the
    precision of accumulation, and intermediate results in the function's own, as far as that leaves no digit.
    """
    largest = _largest(size)
    noise = [each.masked_fill(~judged, 0.0).nan_to_num(0.0, 0.0, 0.0) for each in sample.noise]
    accumulated = max(map(_rms, noise)) * min(precision.eps, _EPS32)
    stored = max(map(_largest, noise)) * precision.eps
    lost = min(1.0, stored / largest) if largest else 1.0
    return _LARGEST * precision.eps * largest + max(accumulated, stored * lost)


def _common(error: Tensor, exact: Tensor, scale: Tensor) -> float:
    """Return <error, exact> / <exact, exact>, without entries that cannot be judged; 0 if there are none."""
    known = scale.isfinite() & error.isfinite()
    weights = exact.masked_fill(~known, 0.0)
    square = float(weights.square().sum())
    return float((error.masked_fill(~known, 0.0) * weights).sum()) / square if square else 0.0


def _common_limit(ideal: Sequence[Tensor], exact: Tensor, scale: Tensor, precision: Precision, terms: int) -> float:
    """Return the common factor up to which errors are accepted.

    Nudges and independent errors of size s show some. Beside them, a number that all entries share, as the statistic
    of a single row, may be rounded in the dtype and summed in the precision of accumulation.
    """
    known = scale.isfinite()
    weights = exact.masked_fill(~known, 0.0)
    square = float(weights.square().sum())
    independent = float((scale.masked_fill(~known, 0.0) * weights).square().sum()) ** 0.5 / square if square else 0.0
    shown = max([independent, *(abs(_common(each, exact, scale)) for each in ideal)])
    accumulated = _FACTOR * math.sqrt(max(1.0, terms / _TERMS)) * min(precision.eps, _EPS32)
    return max(precision.eps, accumulated, error_factor(precision, terms) * shown)


def _modulus(values: Tensor, like: Tensor) -> Tensor:
    """Return magnitudes (n,); both coordinates of a complex number get its modulus, since rounding mixes them."""
    if not like.is_complex():
        return values.abs()
    pairs = values.reshape(-1, 2)
    return pairs.square().sum(dim=1, keepdim=True).sqrt().expand_as(pairs).reshape(-1)


def _row_mean(values: Tensor, like: Tensor) -> Tensor:
    """Return for each value the mean over the last dimension of its tensor; (n,)."""
    if not values.numel():
        return values
    width = (like.shape[-1] if like.dim() else 1) * (2 if like.is_complex() else 1)
    rows = values.reshape(-1, width)
    return rows.mean(dim=1, keepdim=True).expand_as(rows).reshape(-1)


def _largest(values: Tensor) -> float:
    finite = values.abs().nan_to_num(0.0, 0.0, 0.0)
    return float(finite.max()) if finite.numel() else 0.0


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _median(values: Tensor) -> float:
    return float(values.median()) if values.numel() else math.inf
