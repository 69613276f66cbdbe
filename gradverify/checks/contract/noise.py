"""Rounding noise of forward and backward, measured along a line through inputs and cotangents (ECnoise).

On a short line, high-order differences of a smooth function vanish and those of its rounding noise do not (Moré & Wild,
SIAM J. Sci. Comput. 33(3), 2011, section 3). The noise is the smaller of two estimates, one on each side of the point,
because a kink on one side looks like noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.checks.contract.subject import Coordinates, Subject, gradients_of, graph_at, outputs_of
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.problem import fresh
from gradverify.errors import EvaluationError

_POINTS = 6  # equispaced samples on each side of the point
_ORDERS = (3, 4)  # orders of the differences; the smaller estimate is used
_SPACING = 1.3 * 2.0**-21  # relative to each coordinate
_QUIET = 2.0**-44  # times the largest entry: smaller noise on one side is not measured on the other


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseLevels:
    """Standard deviations of rounding noise."""

    gradients: tuple[float, ...]  # per primal: of its gradient's entries, absolute
    outputs: float  # of the forward, relative to its largest entry


def measured_noise(subject: Subject, dtypes: Iterable[torch.dtype]) -> NoiseLevels:
    """Return the noise of forward and backward; costs 6 calls of both, or 12 if there is noise above `_QUIET`.

    `dtypes` are the dtypes of casts in the computation: samples are at least 8 eps of the coarsest apart, relative.
    """
    unit = max(torch.finfo(dtype).eps for dtype in subject.dtypes | frozenset(dtypes))
    spacing = max(_SPACING, 8 * unit)
    sizes = [largest(entry) for entry in subject.gradients]
    right = _one_side(subject, spacing)
    if all(noise <= _QUIET * size for noise, size in zip(right.gradients, sizes, strict=True)):
        return right
    left = _one_side(subject, -spacing)
    return NoiseLevels(
        gradients=tuple(min(pair) for pair in zip(left.gradients, right.gradients, strict=True)),
        outputs=min(left.outputs, right.outputs),
    )


def with_noise(subject: Subject, noise: NoiseLevels, spread: Sequence[float], dtypes: Iterable[torch.dtype]) -> Subject:
    """Return the subject with noise level 4·noise + spread per primal, and with `dtypes` added.

    `spread` is the difference between repeated gradients, absolute.
    """
    level = tuple(4 * one + other for one, other in zip(noise.gradients, spread, strict=True))
    return replace(subject, noise=level, dtypes=subject.dtypes | frozenset(dtypes))


def largest(vector: Tensor) -> float:
    """Return the largest finite magnitude, 0 if there is none."""
    finite = vector.nan_to_num(0.0, 0.0, 0.0).abs()
    return float(finite.max()) if finite.numel() else 0.0


def same_output(subject: Subject, one: Tensor, other: Tensor) -> bool:
    """True if two outputs' coordinates agree within eps**0.5 of the largest entry; NaN equals NaN."""
    eps = max(torch.finfo(dtype).eps for dtype in subject.dtypes)
    allowed = eps**0.5 * largest(other)
    return one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=allowed, equal_nan=True)


def _one_side(subject: Subject, spacing: float) -> NoiseLevels:
    try:
        samples = [_sample(subject, spacing * number) for number in range(1, _POINTS + 1)]
    except EvaluationError:
        return NoiseLevels(gradients=(0.0,) * len(subject.primals), outputs=0.0)
    answers = [answer for answer, _ in samples]
    outputs = torch.stack([torch.cat(values) for _, values in samples])
    return NoiseLevels(
        gradients=tuple(_deviation(torch.stack(column)) for column in zip(*answers, strict=True)),
        outputs=_deviation(outputs) / max(largest(outputs), torch.finfo(torch.float64).tiny),
    )


def _sample(subject: Subject, distance: float) -> tuple[Coordinates, Coordinates]:
    tape = graph_at(subject, displaced([primal.tensor for primal in subject.primals], distance, subject.settings.seed))
    outputs = outputs_of(tape)  # before backward, which may overwrite or free them
    return gradients_of(subject, tape, displaced(subject.cotangents, distance, subject.settings.seed + 1)), outputs


def displaced(tensors: Sequence[Tensor], distance: float, seed: int) -> tuple[Tensor, ...]:
    """Return copies with each coordinate moved at random by up to half the distance, relative."""
    generator = torch.Generator().manual_seed(seed)
    moved = []
    for tensor in tensors:
        values = flatten([tensor])
        direction = torch.rand(values.shape, generator=generator, dtype=torch.float64) - 0.5
        (target,) = unflatten(values * (1 + distance * direction.to(values.device)), [tensor])
        copy = fresh(tensor)
        moved.append(copy.copy_(target) if _writable(copy) else copy)
    return tuple(moved)


def _writable(tensor: Tensor) -> bool:
    return 0 not in tensor.stride() or tensor.numel() < 2


def _deviation(samples: Tensor) -> float:
    """Return the largest standard deviation of noise over the entries; `samples` is (points, entries)."""
    estimates = []
    for order in _ORDERS:
        factor = math.factorial(order) ** 2 / math.factorial(2 * order)
        estimates.append((samples.diff(n=order, dim=0).square().mean(dim=0) * factor).sqrt())
    return largest(torch.stack(estimates).amin(dim=0))
