"""Draw values of each distribution from stratified quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.case import Bernoulli, Distribution, Integers, Linspace, Normal, Permutation, Uniform
from gradverify.errors import InputError
from gradverify.sampling.strata import cover, strata

_MAX_INTEGERS = 2**53  # float64 quantiles have no more distinct values


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """The interval that holds the values of a distribution, and its scale."""

    low: float
    high: float
    width: float  # scale of the distribution, finite and not negative


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRequest:
    """The shape, generator and options of one draw."""

    shape: tuple[int, ...]
    generator: torch.Generator
    jitter: float  # share of its stratum that a value may lie in
    avoid: tuple[float, ...]  # discrete values skip these; continuous ones cover every interval between


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One distribution: its sampling function and its support."""

    kind: type
    values: Callable[[Any, DrawRequest], Tensor]
    support: Callable[[Any], Support]


def distribution_values(distribution: Distribution, request: DrawRequest) -> Tensor:
    """Return float64, int64 or bool values of `request.shape`. Raises InputError."""
    return _entry(distribution).values(distribution, request)


def support_of(distribution: Distribution) -> Support:
    """Return the support of a distribution."""
    return _entry(distribution).support(distribution)


def _normal(normal: Normal, request: DrawRequest) -> Tensor:
    breaks = [
        math.erfc((normal.mean - point) / (normal.std * math.sqrt(2))) / 2 for point in request.avoid if normal.std
    ]
    standard: Tensor = torch.special.ndtri(_quantiles(request, breaks))
    return normal.mean + normal.std * standard


def _uniform(uniform: Uniform, request: DrawRequest) -> Tensor:
    width = uniform.high - uniform.low
    values = uniform.low + width * _quantiles(
        request, [(point - uniform.low) / width for point in request.avoid if width]
    )
    return values.clamp(uniform.low, uniform.high)


def _integers(integers: Integers, request: DrawRequest) -> Tensor:
    left_out = sorted(
        {int(point) for point in request.avoid if integers.low <= point < integers.high and point % 1 == 0}
    )
    choices = integers.high - integers.low - len(left_out)
    count = math.prod(request.shape)
    if choices < 1 and count:
        raise InputError(f"there is no integer to draw in [{integers.low}, {integers.high})")
    if request.jitter < 1 and choices < count:
        raise InputError(f"{count:,} distinct integers do not fit into [{integers.low}, {integers.high})")
    # Distinct integers use the midpoints of the strata: with jitter, neighbours could round to the same integer.
    quantiles = strata(count, request.generator, jitter=0.0 if request.jitter < 1 else 1.0).reshape(request.shape)
    places = (quantiles * min(choices, _MAX_INTEGERS)).floor().to(torch.int64).clamp(max=max(choices - 1, 0))
    values = places + integers.low
    for point in left_out:
        values = torch.where(values >= point, values + 1, values)
    return values


def _bernoulli(bernoulli: Bernoulli, request: DrawRequest) -> Tensor:
    return _quantiles(request) < bernoulli.p


def _linspace(linspace: Linspace, request: DrawRequest) -> Tensor:
    return torch.linspace(linspace.start, linspace.end, math.prod(request.shape), dtype=torch.float64).reshape(
        request.shape
    )


def _permutation(_permutation: Permutation, request: DrawRequest) -> Tensor:
    if not request.shape:
        return torch.zeros((), dtype=torch.int64)
    rows, length = math.prod(request.shape[:-1]), request.shape[-1]
    orders = [torch.randperm(length, generator=request.generator, dtype=torch.int64) for _ in range(rows)]
    return torch.stack(orders).reshape(request.shape) if orders else torch.empty(request.shape, dtype=torch.int64)


def _quantiles(request: DrawRequest, breaks: Iterable[float] = ()) -> Tensor:
    """Return stratified quantiles of `request.shape`, at least one between any two breaks if there are enough."""
    quantiles = strata(math.prod(request.shape), request.generator, jitter=request.jitter)
    return cover(quantiles, breaks, request.generator).reshape(request.shape)


def _between(low: float, high: float) -> Support:
    return Support(low=min(low, high), high=max(low, high), width=abs(high - low))


def _entry(distribution: Distribution) -> _Entry:
    return next(entry for entry in _DISTRIBUTIONS if isinstance(distribution, entry.kind))


_DISTRIBUTIONS = (
    _Entry(
        kind=Normal,
        values=_normal,
        support=lambda normal: Support(low=-math.inf, high=math.inf, width=4 * abs(normal.std)),
    ),
    _Entry(kind=Uniform, values=_uniform, support=lambda uniform: _between(uniform.low, uniform.high)),
    _Entry(kind=Integers, values=_integers, support=lambda integers: _between(integers.low, integers.high)),
    _Entry(kind=Bernoulli, values=_bernoulli, support=lambda _: _between(0.0, 1.0)),
    _Entry(kind=Linspace, values=_linspace, support=lambda linspace: _between(linspace.start, linspace.end)),
    _Entry(kind=Permutation, values=_permutation, support=lambda _: _between(0.0, math.inf)),
)
