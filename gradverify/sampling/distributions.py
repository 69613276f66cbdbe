"""Quantiles to values: one function per distribution, and the table that names them."""

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

_MOST_INTEGERS = 2**53  # float64 quantiles cannot tell more apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Where the values of a distribution lie."""

    low: float
    high: float
    width: float  # scale of the distribution, finite and not negative


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What a distribution is asked for."""

    shape: tuple[int, ...]
    generator: torch.Generator
    jitter: float  # share of its stratum that a value may lie in
    avoid: tuple[float, ...]  # points that discrete values leave out, and on whose every side a continuous one lies


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One distribution: how it is drawn, and where its values lie."""

    kind: type
    values: Callable[[Any, Draw], Tensor]
    support: Callable[[Any], Support]


def distribution_values(distribution: Distribution, draw: Draw) -> Tensor:
    """Return float64, int64 or bool values of `draw.shape`; raises InputError."""
    return _entry(distribution).values(distribution, draw)


def support_of(distribution: Distribution) -> Support:
    """Return where the values of a distribution lie."""
    return _entry(distribution).support(distribution)


def _normal(normal: Normal, draw: Draw) -> Tensor:
    breaks = [math.erfc((normal.mean - point) / (normal.std * math.sqrt(2))) / 2 for point in draw.avoid if normal.std]
    standard: Tensor = torch.special.ndtri(_quantiles(draw, breaks))
    return normal.mean + normal.std * standard


def _uniform(uniform: Uniform, draw: Draw) -> Tensor:
    width = uniform.high - uniform.low
    values = uniform.low + width * _quantiles(draw, [(point - uniform.low) / width for point in draw.avoid if width])
    return values.clamp(uniform.low, uniform.high)


def _integers(integers: Integers, draw: Draw) -> Tensor:
    left_out = sorted({int(point) for point in draw.avoid if integers.low <= point < integers.high and point % 1 == 0})
    choices = integers.high - integers.low - len(left_out)
    count = math.prod(draw.shape)
    if choices < 1 and count:
        raise InputError(f"there is no integer to draw in [{integers.low}, {integers.high})")
    if draw.jitter < 1 and choices < count:
        raise InputError(f"{count:,} distinct integers do not fit into [{integers.low}, {integers.high})")
    # Distinct integers are drawn at the midpoints: jitter could put two neighbours into one integer.
    quantiles = strata(count, draw.generator, jitter=0.0 if draw.jitter < 1 else 1.0).reshape(draw.shape)
    places = (quantiles * min(choices, _MOST_INTEGERS)).floor().to(torch.int64).clamp(max=max(choices - 1, 0))
    values = places + integers.low
    for point in left_out:
        values = torch.where(values >= point, values + 1, values)
    return values


def _bernoulli(bernoulli: Bernoulli, draw: Draw) -> Tensor:
    return _quantiles(draw) < bernoulli.p


def _linspace(linspace: Linspace, draw: Draw) -> Tensor:
    return torch.linspace(linspace.start, linspace.end, math.prod(draw.shape), dtype=torch.float64).reshape(draw.shape)


def _permutation(_permutation: Permutation, draw: Draw) -> Tensor:
    if not draw.shape:
        return torch.zeros((), dtype=torch.int64)
    rows, length = math.prod(draw.shape[:-1]), draw.shape[-1]
    orders = [torch.randperm(length, generator=draw.generator, dtype=torch.int64) for _ in range(rows)]
    return torch.stack(orders).reshape(draw.shape) if orders else torch.empty(draw.shape, dtype=torch.int64)


def _quantiles(draw: Draw, breaks: Iterable[float] = ()) -> Tensor:
    """Return stratified quantiles of `draw.shape` with one at least between any two breaks, if there are enough."""
    quantiles = strata(math.prod(draw.shape), draw.generator, jitter=draw.jitter)
    return cover(quantiles, breaks, draw.generator).reshape(draw.shape)


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
