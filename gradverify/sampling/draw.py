"""Make an input tensor from its description, its name and a seed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradverify.case import Constraint, DataFile, Distribution, Factory, Linspace, Normal, TensorInput, Uniform, Values
from gradverify.errors import InputError
from gradverify.sampling.avoid import keep_away
from gradverify.sampling.constraints import ELEMENTWISE, impose
from gradverify.sampling.distributions import DrawRequest, Support, distribution_values, support_of
from gradverify.sampling.dtypes import dtype_for, dtype_named, is_differentiable
from gradverify.sampling.files import read_tensor
from gradverify.sampling.layouts import lay_out
from gradverify.sampling.literals import literal_tensor, reshaped
from gradverify.sampling.seeding import private_generator

_CONTINUOUS = (Normal, Uniform, Linspace)
_DISTINCT_JITTER = 0.5  # of a stratum: neighbouring quantiles differ by at least half a stratum


def draw(description: TensorInput, *, name: str, key: str, seed: int, dtype: str, device: str) -> Tensor:
    """Return the described tensor. Random values depend only on `key`, `seed` and `name`.

    They are drawn in float64 on the CPU and then converted, so that they agree between dtypes and devices. Raises
    InputError. Factories are called elsewhere, and their tensors go through `finish`.
    """
    origin = description.origin
    if isinstance(origin, Factory):
        raise TypeError("a factory's tensor goes through finish()")
    if isinstance(origin, Values):
        values = literal_tensor(origin.values, description.shape)
    elif isinstance(origin, DataFile):
        values = reshaped(read_tensor(origin.path), description.shape)
    else:
        values = _random(origin, description, private_generator(key, seed, name), dtype)
    return finish(values, description, dtype=dtype, device=device)


def finish(values: Tensor, description: TensorInput, *, dtype: str, device: str) -> Tensor:
    """Return `values` with the constraint, dtype, device, layout and requires_grad of the description.

    Raises InputError.
    """
    wanted = dtype_for(values, description.dtype, dtype)
    moved = _constrained(values.detach(), description).to(dtype=wanted, device=device)
    result = lay_out(moved, description.layout)
    differentiable = is_differentiable(wanted)
    if description.requires_grad and not differentiable:
        raise InputError(f"requires_grad: only floating and complex tensors can be differentiated, this is {wanted}")
    return result.requires_grad_(differentiable if description.requires_grad is None else description.requires_grad)


def _random(origin: Distribution, description: TensorInput, generator: torch.Generator, dtype: str) -> Tensor:
    assert description.shape is not None
    request = DrawRequest(
        shape=description.shape,
        generator=generator,
        jitter=_DISTINCT_JITTER if description.constraint is Constraint.DISTINCT else 1.0,
        avoid=description.avoid,
    )
    values = distribution_values(origin, request)
    own = description.dtype if description.dtype not in (None, "case") else dtype
    if isinstance(origin, _CONTINUOUS) and own is not None and dtype_named(own).is_complex:
        return torch.complex(values, distribution_values(origin, request))
    return values


def _constrained(values: Tensor, description: TensorInput) -> Tensor:
    constraint, avoid = description.constraint, description.avoid
    if constraint is not None:
        values = impose(values, constraint)
    if not is_differentiable(values.dtype) or not (avoid or constraint is Constraint.POSITIVE):
        return values
    if avoid and constraint is not None and constraint not in ELEMENTWISE:
        raise InputError(f"`avoid` cannot be kept together with `constraint: {constraint}`")
    support = _support(values, description)
    if constraint is Constraint.POSITIVE:
        highest = max(abs(support.low), abs(support.high))
        avoid, support = (0.0, *avoid), Support(low=0.0, high=highest, width=support.width)
    values = keep_away(values, avoid, support)
    return values.tril() if constraint is Constraint.TRIANGULAR else values


def _support(values: Tensor, description: TensorInput) -> Support:
    """Return the support of the values; given values have an unbounded one, as wide as their range."""
    if not isinstance(description.origin, Values | DataFile | Factory):
        return support_of(description.origin)
    parts = values.real if values.is_complex() else values
    finite = parts[parts.isfinite()].to(torch.float64)
    spread = float(finite.max() - finite.min()) if finite.numel() else 0.0
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return Support(low=-math.inf, high=math.inf, width=spread or largest or 1.0)
