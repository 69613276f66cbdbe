"""More hidden mistakes: matrices, polynomials, spectra and a second derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, numbers, uniform


class SquareRootMatrix(Function):
    """Square root of the symmetric part of positive definite matrices: (..., n, n) -> (..., n, n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if x.dim() < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError("x must be square")
        eigenvalues, vectors = torch.linalg.eigh((x + x.mT) / 2)
        if bool((eigenvalues <= 0).any()):
            raise ValueError("x must be positive definite")
        ctx.save_for_backward(eigenvalues, vectors)
        return vectors * eigenvalues.sqrt().unsqueeze(-2) @ vectors.mT

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        eigenvalues, vectors = ctx.saved_tensors
        roots = eigenvalues.sqrt()
        return _spectral_vjp(grad, vectors, 1 / (roots.unsqueeze(-1) + roots.unsqueeze(-2)))


class SquareRootMatrixDistinct(SquareRootMatrix):
    """Backward divides by differences of eigenvalues."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        eigenvalues, vectors = ctx.saved_tensors
        roots = eigenvalues.sqrt()
        quotients = (roots.unsqueeze(-1) - roots.unsqueeze(-2)) / (
            eigenvalues.unsqueeze(-1) - eigenvalues.unsqueeze(-2)
        )
        same = torch.eye(roots.shape[-1], dtype=torch.bool)
        return _spectral_vjp(grad, vectors, torch.where(same, 1 / (2 * roots.unsqueeze(-1)), quotients))


def _spectral_vjp(grad: Tensor, vectors: Tensor, quotients: Tensor) -> Tensor:
    slope = vectors @ (vectors.mT @ grad @ vectors * quotients) @ vectors.mT
    return (slope + slope.mT) / 2


class Polynomial(Function):
    """Sum of coefficients[k] * x**k, of real or complex numbers: (...), (n,) -> (...)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficients: Tensor) -> Tensor:
        if x.dtype != coefficients.dtype or coefficients.dim() != 1 or not len(coefficients):
            raise ValueError("x and coefficients must have one dtype, and coefficients be a vector that is not empty")
        ctx.save_for_backward(x, coefficients)
        return _horner(x, coefficients)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, coefficients = ctx.saved_tensors
        slope, powers = _polynomial_slopes(x, coefficients)
        return grad * slope.conj(), (grad.unsqueeze(-1) * powers.conj()).reshape(-1, len(coefficients)).sum(0)


class PolynomialUnconjugated(Polynomial):
    """Backward multiplies with the derivatives instead of their conjugates."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, coefficients = ctx.saved_tensors
        slope, powers = _polynomial_slopes(x, coefficients)
        return grad * slope, (grad.unsqueeze(-1) * powers).reshape(-1, len(coefficients)).sum(0)


def _horner(x: Tensor, coefficients: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    for coefficient in coefficients.flip(0).unbind():
        y = y * x + coefficient
    return y


def _polynomial_slopes(x: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives with respect to x (...) and the coefficients (..., n)."""
    n = len(coefficients)
    return _horner(x, (coefficients * torch.arange(n))[1:]), torch.stack([x**k for k in range(n)], -1)


class PlanckSpectrum(Function):
    """frequency**3 / (exp(frequency / temperature) - 1), both above 0 and of one shape: (...) -> (...)."""

    @staticmethod
    def forward(ctx: Any, frequency: Tensor, temperature: Tensor) -> Tensor:
        if frequency.shape != temperature.shape or not bool((frequency > 0).all() and (temperature > 0).all()):
            raise ValueError("frequency and temperature must have one shape and be above 0")
        y = frequency**3 / (frequency / temperature).expm1()
        ctx.save_for_backward(frequency, temperature, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        frequency, temperature, y = ctx.saved_tensors
        return _planck_vjp(grad * y, frequency, temperature, -1 / (-frequency / temperature).expm1())


class PlanckSpectrumOverflowing(PlanckSpectrum):
    """exp(u) / (exp(u) - 1) is infinity over infinity at large u."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        frequency, temperature, y = ctx.saved_tensors
        u = frequency / temperature
        return _planck_vjp(grad * y, frequency, temperature, u.exp() / u.expm1())


def _planck_vjp(share: Tensor, frequency: Tensor, temperature: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    return share * (3 / frequency - slope / temperature), share * slope * frequency / temperature**2


class MainDiagonal(Function):
    """Main diagonal of a matrix: (n, m) -> (min(n, m),)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError("x must be a matrix")
        ctx.save_for_backward(x)
        return x.diagonal().clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        of_x = torch.zeros_like(x)
        of_x.diagonal().copy_(grad)
        return of_x


class MainDiagonalStrided(MainDiagonal):
    """Backward writes every m + 1 numbers, but zeros_like has the strides of x."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        of_x = torch.zeros_like(x)
        of_x.as_strided(grad.shape, (x.shape[1] + 1,)).copy_(grad)
        return of_x


class _SoftplusSlope(Function):
    """grad * sigmoid(beta * x)."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, beta: float) -> Tensor:
        y = (beta * x).sigmoid()
        ctx.save_for_backward(grad, y)
        ctx.beta = beta
        return grad * y

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
        grad, y = ctx.saved_tensors
        return cotangent * y, cotangent * grad * ctx.beta * y * (1 - y), None


class _SoftplusSlopeOfOne(_SoftplusSlope):
    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
        grad, y = ctx.saved_tensors
        return cotangent * y, cotangent * grad * y * (1 - y), None


class Softplus(Function):
    """log(1 + exp(beta * x)) / beta."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, beta: float) -> Tensor:
        if not beta > 0:
            raise ValueError("beta must be above 0")
        ctx.save_for_backward(x)
        ctx.beta = beta
        return torch.logaddexp(beta * x, torch.zeros_like(x)) / beta

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _SoftplusSlope.apply(grad, x, ctx.beta), None


class SoftplusOfOne(Softplus):
    """The second derivative lacks the factor beta."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _SoftplusSlopeOfOne.apply(grad, x, ctx.beta), None


def _positive_definite(seed: int, n: int) -> Tensor:
    x = normal(seed, n, n).detach()
    return (x @ x.mT + torch.eye(n, dtype=x.dtype)).requires_grad_()


def _complex_numbers(*values: complex) -> Tensor:
    return torch.tensor(values, dtype=torch.complex128, requires_grad=True)


LATER_FUNCTIONS = (
    Hidden(
        name="square root of a matrix",
        change="ties",
        wrong=SquareRootMatrixDistinct,
        right=SquareRootMatrix,
        inputs=lambda: (_positive_definite(150, 3),),
        shows_at=lambda: (numbers([2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 2.0]),),
    ),
    Hidden(
        name="polynomial",
        change="dtype",
        wrong=PolynomialUnconjugated,
        right=Polynomial,
        inputs=lambda: (normal(151, 4), normal(152, 3)),
        shows_at=lambda: (_complex_numbers(0.5 + 1j, -0.25 + 0.5j), _complex_numbers(1j, 0.5 - 1j, -0.5)),
    ),
    Hidden(
        name="planck spectrum",
        change="scale",
        wrong=PlanckSpectrumOverflowing,
        right=PlanckSpectrum,
        inputs=lambda: (uniform(153, 0.5, 8.0, 4), uniform(154, 0.5, 2.0, 4)),
        shows_at=lambda: (numbers(500.0, 3000.0), numbers(1.5, 2.0)),
    ),
    Hidden(
        name="main diagonal",
        change="layout",
        wrong=MainDiagonalStrided,
        right=MainDiagonal,
        inputs=lambda: (normal(155, 2, 3),),
        shows_at=lambda: (normal(155, 3, 2).detach().t().requires_grad_(),),
    ),
    Hidden(
        name="softplus",
        change="second order",
        wrong=SoftplusOfOne,
        right=Softplus,
        inputs=lambda: (normal(156, 4), 1.0),
        shows_at=lambda: (normal(156, 4), 2.0),
    ),
)
