"""Infinities, NaN and numbers that a dtype cannot hold, in the values of a function and of its reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One tensor as the function and its reference computed it, as real coordinates in float64."""

    value: Tensor  # (n,) by the function
    exact: Tensor  # (n,) by the reference
    nudged: tuple[Tensor, ...]  # each (n,), by the reference at nudged inputs and cotangents
    noisy: tuple[Tensor, ...]  # each (n,), change of the reference in noisy arithmetic over the size of the noise
    jittered: Tensor  # (n,) change by the rounding of float64 alone, divided by its eps
    jump: Tensor  # (n,) largest change where the reference jumps at the point; `noisy` and `jittered` are 0 there
    like: Tensor  # the function's tensor: shape, dtype


def can_hold(sample: Sample) -> Tensor:
    """Return (n,) bool, True where the reference is a finite number that the dtype can hold."""
    held = sample.exact.abs() <= torch.finfo(sample.like.dtype).max
    if not sample.like.is_complex():
        return held
    pairs = held.reshape(-1, 2)
    return pairs.all(dim=1, keepdim=True).expand_as(pairs).reshape(-1)


def differ_in_finiteness(sample: Sample, held: Tensor, rounded: Tensor) -> Tensor:
    """Return (n,) bool, True where one of value and reference is finite and the other not, or infinities differ.

    Where the reference is a number beyond the largest one of the dtype, the value is infinite, that largest number, or
    `rounded`. A complex number that is not finite is not compared: which coordinates are infinite is a convention.
    """
    value, exact = sample.value, sample.exact
    missing = held & ~value.isfinite()
    if sample.like.is_complex():
        return missing
    saturated = value.abs() >= torch.finfo(sample.like.dtype).max
    same = torch.where(exact.isinf(), value == exact, saturated & (value.sign() == exact.sign()) | rounded)
    return missing | ~held & ~exact.isnan() & ~same


def cannot_judge(sample: Sample, held: Tensor) -> Tensor:
    """Return (n,) bool, True where the reference is no judge: it is NaN, or not finite at a nudge.

    The latter is so at the edge of a domain. A NaN by both is no difference.
    """
    near = torch.stack([*sample.nudged, *sample.noisy, sample.jittered]).isfinite().all(dim=0)
    if sample.like.is_complex():
        return torch.where(held, ~near, sample.value.isfinite())
    return torch.where(held, ~near, sample.exact.isnan() & ~sample.value.isnan())
