"""Functions of matrices by iteration: exponential, square root, leading eigenvector, polar factor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.slow_subject import slow, with_backward
from tests.zoo.specimen import at, normal

Array = NDArray[np.float64]


class MatrixExponential(Function):
    """Taylor's series of A/2^s, squared s times; the gradient is a block of a larger exponential, of itself."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        return torch.from_numpy(_exponential(a.detach().numpy(), 18))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return _upper_right(MatrixExponential.apply(_beside(a.T, g)))


def _exponential_untransposed(ctx: Any, g: Tensor) -> Tensor:
    (a,) = ctx.saved_tensors
    return _upper_right(MatrixExponential.apply(_beside(a, g)))


@once_differentiable
def _exponential_of_few_terms(ctx: Any, g: Tensor) -> Tensor:
    (a,) = ctx.saved_tensors
    return _upper_right(torch.from_numpy(_exponential(_beside(a.T, g).numpy(), 4)))


def _exponential(a: Array, terms: int) -> Array:
    squarings = max(0, int(np.ceil(np.log2(np.abs(a).sum(0).max() + 1e-300))) + 2)
    term = total = np.eye(len(a))
    for k in range(1, terms + 1):
        term = term @ a / (k * 2.0**squarings)
        total = total + term
    for _ in range(squarings):
        total = total @ total
    return total


def _beside(a: Tensor, g: Tensor) -> Tensor:
    return torch.cat([torch.cat([a, g], 1), torch.cat([torch.zeros_like(a), a], 1)])


def _upper_right(whole: Tensor) -> Tensor:
    half = len(whole) // 2
    return whole[:half, half:].clone()


class SquareRoot(Function):
    """Principal square root by the iteration of Denman and Beavers; the gradient solves Sylvester's equation."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        root = _denman_beavers(a)
        ctx.save_for_backward(root)
        return root.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        one = torch.eye(len(root), dtype=root.dtype)
        system = torch.kron(root.T.contiguous(), one) + torch.kron(one, root)
        return torch.linalg.solve(system, g.reshape(-1)).view_as(g)


@once_differentiable
def _as_if_commuting(ctx: Any, g: Tensor) -> Tensor:
    return 0.5 * torch.linalg.inv(ctx.saved_tensors[0]).T @ g


@once_differentiable
def _sylvester_by_few_steps(ctx: Any, g: Tensor) -> Tensor:
    """Solve Rᵀ·L + L·Rᵀ = G by three Newton steps for the sign of a block matrix."""
    (root,) = ctx.saved_tensors
    upper, right = root.T, g
    for _ in range(3):
        inverse = torch.linalg.inv(upper)
        right = (right + inverse @ right @ inverse) / 2
        upper = (upper + inverse) / 2
    return right / 2


def _denman_beavers(a: Tensor) -> Tensor:
    y, z = a, torch.eye(len(a), dtype=a.dtype)
    for _ in range(30):
        before = y
        y, z = (y + torch.linalg.inv(z)) / 2, (z + torch.linalg.inv(y)) / 2
        if (y - before).abs().max() <= 1e-14:
            break
    return y


class LeadingVector(Function):
    """Eigenvector of the largest eigenvalue of the symmetric part, by power iteration."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        return _iterated(ctx, a, 400)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        a, v = ctx.saved_tensors
        return _vector_gradient(a, v, g - v * (v @ g))


class UnconvergedVector(LeadingVector):
    """Few steps."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        return _iterated(ctx, a, 14)


@once_differentiable
def _without_projection(ctx: Any, g: Tensor) -> Tensor:
    return _vector_gradient(*ctx.saved_tensors, g)


def _iterated(ctx: Any, a: Tensor, steps: int) -> Tensor:
    s, v = (a + a.T) / 2, torch.ones(len(a), dtype=a.dtype) / len(a) ** 0.5
    for _ in range(steps):
        image = s @ v
        v, before = image / image.norm(), v
        if (v - before).abs().max() <= 1e-16:
            break
    ctx.save_for_backward(a, v)
    return v.clone()


def _vector_gradient(a: Tensor, v: Tensor, g: Tensor) -> Tensor:
    s = (a + a.T) / 2
    system = (v @ s @ v) * torch.eye(len(a), dtype=a.dtype) - s + torch.outer(v, v)
    both = torch.outer(torch.linalg.solve(system, g), v)
    return (both + both.T) / 2


def _leading_vector(a: Tensor) -> Tensor:
    vector = torch.linalg.eigh((a + a.T) / 2).eigenvectors[:, -1]
    return vector * vector.sum().sign().detach()


class PolarFactor(Function):
    """Orthogonal factor by Newton's iteration on a batch of matrices, one after the other."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        factors = torch.stack([_orthogonal(each, 60) for each in a])
        ctx.save_for_backward(a, factors)
        return factors

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        a, factors = ctx.saved_tensors
        return torch.stack([_polar_gradient(*each) for each in zip(a, factors, g, strict=True)])


class UnconvergedPolarFactor(PolarFactor):
    """Five steps of the iteration."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        factors = torch.stack([_orthogonal(each, 5) for each in a])
        ctx.save_for_backward(a, factors)
        return factors


def _as_if_orthogonal(ctx: Any, g: Tensor) -> Tensor:
    _, u = ctx.saved_tensors
    return (g - u @ g.mT @ u) / 2


def _orthogonal(a: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        a, before = (a + torch.linalg.inv(a).T) / 2, a
        if (a - before).abs().max() <= 1e-15:
            break
    return a


def _polar_gradient(a: Tensor, u: Tensor, g: Tensor) -> Tensor:
    """Return U·Y with S·Y + Y·S = Uᵀ·G - Gᵀ·U and S = Uᵀ·A."""
    s, one = u.T @ a, torch.eye(len(a), dtype=a.dtype)
    system = torch.kron(s, one) + torch.kron(one, s.T.contiguous())
    return u @ torch.linalg.solve(system, (u.T @ g - g.T @ u).reshape(-1)).view_as(g)


def _polar_factor(a: Tensor) -> Tensor:
    u, _, v = torch.linalg.svd(a)
    return u @ v


MATRICES = (
    slow(
        "matrix exponential",
        MatrixExponential,
        one_entry=((0, 0), "a", (0, 0)),
        throughout=with_backward(MatrixExponential, _exponential_untransposed),
        approximate=with_backward(MatrixExponential, _exponential_of_few_terms),
        plain=torch.linalg.matrix_exp,
        a=normal(4, 4, scale=0.5),
    ),
    slow(
        "matrix square root",
        SquareRoot,
        one_entry=((1, 0), "a", (1, 0)),
        throughout=with_backward(SquareRoot, _as_if_commuting),
        approximate=with_backward(SquareRoot, _sylvester_by_few_steps),
        plain=_denman_beavers,
        a=at([4.0, 1.0, 0.5, 0.1], [0.8, 3.0, 0.2, 0.4], [0.3, 0.2, 2.0, 0.6], [0.2, 0.1, 0.4, 1.5]),
    ),
    slow(
        "leading eigenvector",
        LeadingVector,
        one_entry=((2,), "a", (2, 2)),
        throughout=with_backward(LeadingVector, _without_projection),
        approximate=UnconvergedVector,
        plain=_leading_vector,
        a=at(
            [4.0, 1.0, 0.5, 0.2, 0.1],
            [1.2, 2.0, 0.3, 0.1, 0.4],
            [0.3, 0.5, 1.5, 0.2, 0.3],
            [0.1, 0.4, 0.2, 1.0, 0.2],
            [0.3, 0.1, 0.4, 0.3, 0.5],
        ),
    ),
    slow(
        "polar factor",
        PolarFactor,
        one_entry=((1, 0, 1), "a", (1, 0, 2)),
        throughout=with_backward(PolarFactor, _as_if_orthogonal),
        approximate=UnconvergedPolarFactor,
        plain=_polar_factor,
        a=normal(2, 3, 3),
    ),
)
