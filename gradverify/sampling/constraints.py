"""Constraints on input values: bring values into the set, and project perturbations onto it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from gradverify.case import Constraint, TensorInput
from gradverify.errors import InputError

Transform = Callable[[Tensor], Tensor]

_ROUNDING = 1e-12  # by which sums of squares, or of weights, may be off 1

# Constraints that still hold after the same monotone function is applied to every value.
ELEMENTWISE = frozenset({Constraint.POSITIVE, Constraint.DISTINCT, Constraint.SYMMETRIC, Constraint.TRIANGULAR})


def impose(values: Tensor, constraint: Constraint) -> Tensor:
    """Return `values` moved into the set, where they stay if they are in it. Raises InputError if there is no way."""
    return _IMPOSE[constraint](values)


def projection(description: TensorInput) -> Transform | None:
    """Return the differentiable projection for perturbations of this input, None if it needs none.

    Complex symmetric matrices are projected to their Hermitian part, which torch's matrix functions expect.
    """
    if not description.constrained or description.constraint is None:
        return None
    return _PROJECT.get(description.constraint)


def _positive(values: Tensor) -> Tensor:
    """Return absolute values, for integers at least 1. `draw` moves floating values away from zero afterwards."""
    if values.is_floating_point() or values.is_complex():
        return values.abs().to(values.dtype)
    return values.abs().clamp(min=1) if values.dtype is not torch.bool else torch.ones_like(values)


def _distinct(values: Tensor) -> Tensor:
    ordered = torch.view_as_real(values).sum(-1) if values.is_complex() else values
    if bool((ordered.flatten().sort().values.diff() == 0).any()):
        raise InputError("`constraint: distinct`, but some values are equal")
    return values


def _mirrored(values: Tensor) -> Tensor:
    """Return the Hermitian matrix with the lower triangle of `values`; entries keep their distribution."""
    _require_square(values, "symmetric")
    below, diagonal = values.tril(-1), values.diagonal(dim1=-2, dim2=-1)
    middle = torch.diag_embed(diagonal.real if values.is_complex() else diagonal)
    return below + below.mH + middle


def _positive_definite(values: Tensor) -> Tensor:
    """Return matrices with condition number 4, equally spaced eigenvalues, and the scale (rms) of `values`."""
    _require_square(values, "positive_definite")
    _require_floating(values, "positive_definite")
    exact = values.to(torch.complex128 if values.is_complex() else torch.float64)
    if torch.equal(exact, exact.mH) and not bool(torch.linalg.cholesky_ex(exact).info.any()):
        return values
    vectors = torch.linalg.qr(values).Q
    scale = values.abs().square().mean().sqrt() if values.numel() else values.new_ones(())
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    eigenvalues = torch.linspace(0.5, 2.0, values.shape[-1], dtype=torch.float64) * scale.real
    return _hermitian_part((vectors * eigenvalues) @ vectors.mH)


def _simplex(values: Tensor) -> Tensor:
    _require_floating(values, "simplex")
    if not values.is_complex() and bool((values >= 0).all()) and _is_close(values.sum(dim=-1)):
        return values
    weights = values.abs()
    floor = weights.mean(dim=-1, keepdim=True) / 20 if values.numel() else weights
    weights = torch.where(weights.sum(dim=-1, keepdim=True) > 0, weights + floor, torch.ones_like(weights))
    return (weights / weights.sum(dim=-1, keepdim=True)).to(values.dtype)


def _unit_norm(values: Tensor) -> Tensor:
    _require_floating(values, "unit_norm")
    norm = values.abs().square().sum(dim=-1, keepdim=True).sqrt()
    direction = torch.where(norm > 0, values, torch.ones_like(values))
    unit: Tensor = direction / direction.abs().square().sum(dim=-1, keepdim=True).sqrt()
    return unit


def _triangular(values: Tensor) -> Tensor:
    _require_matrix(values, "triangular")
    return values.tril()


def _orthogonal(values: Tensor) -> Tensor:
    """Return matrices with orthonormal columns, or orthonormal rows if there are fewer rows than columns."""
    _require_matrix(values, "orthogonal")
    _require_floating(values, "orthogonal")
    wide = values.shape[-2] < values.shape[-1]
    tall = values.mH if wide else values
    if _is_close(tall.mH @ tall, torch.eye(tall.shape[-1], dtype=values.dtype)):
        return values
    vectors: Tensor = torch.linalg.qr(tall).Q
    return vectors.mH if wide else vectors


def _is_close(found: Tensor, to: Tensor | float = 1.0) -> bool:
    """Return True if numbers are what they should be, up to rounding."""
    return bool(((found - to).abs() <= _ROUNDING).all())


def _hermitian_part(values: Tensor) -> Tensor:
    return (values + values.mH) / 2


def _lower(values: Tensor) -> Tensor:
    return values.tril()


def _require_matrix(values: Tensor, name: str) -> None:
    if values.dim() < 2:
        raise InputError(f"`constraint: {name}` needs a matrix, but the shape is {list(values.shape)}")


def _require_square(values: Tensor, name: str) -> None:
    _require_matrix(values, name)
    if values.shape[-1] != values.shape[-2]:
        raise InputError(f"`constraint: {name}` needs a square matrix, but the shape is {list(values.shape)}")


def _require_floating(values: Tensor, name: str) -> None:
    if not values.is_floating_point() and not values.is_complex():
        raise InputError(f"`constraint: {name}` needs floating values, but they are {values.dtype}")
    if not values.dim():
        raise InputError(f"`constraint: {name}` needs at least one dimension")


_IMPOSE: Mapping[Constraint, Transform] = MappingProxyType(
    {
        Constraint.POSITIVE: _positive,
        Constraint.DISTINCT: _distinct,
        Constraint.SYMMETRIC: _mirrored,
        Constraint.POSITIVE_DEFINITE: _positive_definite,
        Constraint.SIMPLEX: _simplex,
        Constraint.UNIT_NORM: _unit_norm,
        Constraint.TRIANGULAR: _triangular,
        Constraint.ORTHOGONAL: _orthogonal,
    }
)
_PROJECT: Mapping[Constraint, Transform] = MappingProxyType(
    {
        Constraint.SYMMETRIC: _hermitian_part,
        Constraint.POSITIVE_DEFINITE: _hermitian_part,
        Constraint.TRIANGULAR: _lower,
    }
)
