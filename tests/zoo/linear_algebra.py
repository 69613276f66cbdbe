"""Products, decompositions and solves."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.zoo.specimen import Specimen, at, fixed, normal, specimen, uniform

_L = "linear algebra"


def spd(x: Tensor) -> Tensor:
    """Return a symmetric positive definite matrix made of x."""
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def symmetric(x: Tensor) -> Tensor:
    """Return the symmetric part."""
    return (x + x.mT) / 2


LINEAR_ALGEBRA: tuple[Specimen, ...] = (
    specimen("matmul", torch.matmul, _L, a=normal(3, 4), b=normal(4, 2)),
    specimen("batched matmul", torch.bmm, _L, a=normal(2, 2, 3), b=normal(2, 3, 2)),
    specimen("matrix times vector", torch.mv, _L, a=normal(4, 3), x=normal(3)),
    specimen("outer product", torch.outer, _L, x=normal(3), y=normal(4)),
    specimen("gram", lambda x: x.mT @ x, _L, x=normal(4, 3)),
    specimen("quadratic form", lambda x, a: x @ a @ x, _L, x=normal(4), a=normal(4, 4)),
    specimen("determinant", torch.linalg.det, _L, a=normal(3, 3)),
    specimen("determinant of a nearly singular matrix", torch.linalg.det, _L, a=at([1.0, 2.0], [2.0, 4.001])),
    specimen("slogdet", lambda a: torch.linalg.slogdet(a)[1], _L, a=normal(3, 3)),
    specimen("inverse", torch.linalg.inv, _L, a=normal(3, 3)),
    specimen("inverse of a nearly singular matrix", torch.linalg.inv, _L, a=at([1.0, 1.0], [1.0, 1.0001])),
    specimen("Hilbert inverse", torch.linalg.inv, _L, a=at(*[[1 / (i + j + 1) for j in range(4)] for i in range(4)])),
    specimen("cholesky", lambda x: torch.linalg.cholesky(spd(x)), _L, x=normal(3, 3)),
    specimen(
        "cholesky of the symmetrised", lambda a: torch.linalg.cholesky(symmetric(a)), _L, a=at([4.0, 1.0], [1.0, 3.0])
    ),
    specimen("singular values", torch.linalg.svdvals, _L, a=normal(4, 3)),
    specimen("nuclear norm", lambda a: torch.linalg.svdvals(a).sum(), _L, a=normal(3, 3)),
    specimen("spectral norm", lambda a: torch.linalg.matrix_norm(a, 2), _L, a=normal(3, 3)),
    specimen("eigenvalues of the symmetrised", lambda a: torch.linalg.eigvalsh(symmetric(a)), _L, a=normal(3, 3)),
    specimen("projector on the top eigenvector", lambda a: _projector(symmetric(a)), _L, a=normal(3, 3)),
    specimen("solve", torch.linalg.solve, _L, a=normal(3, 3), b=normal(3, 2)),
    specimen(
        "triangular solve",
        lambda a, b: torch.linalg.solve_triangular(a.tril() + 3 * torch.eye(3, dtype=a.dtype), b, upper=False),
        _L,
        a=normal(3, 3),
        b=normal(3, 2),
    ),
    specimen(
        "least squares by normal equations",
        lambda a, b: torch.linalg.solve(a.mT @ a, a.mT @ b),
        _L,
        a=normal(5, 3),
        b=normal(5),
    ),
    specimen("pseudo-inverse", torch.linalg.pinv, _L, a=normal(4, 2)),
    specimen("matrix exponential", torch.linalg.matrix_exp, _L, a=normal(3, 3)),
    specimen("matrix power", lambda a: torch.linalg.matrix_power(a, 4), _L, a=normal(3, 3)),
    specimen("qr's triangle", lambda a: torch.linalg.qr(a).R.abs(), _L, a=normal(4, 3)),
    specimen("cross product", torch.linalg.cross, _L, x=normal(4, 3), y=normal(4, 3)),
    specimen("kronecker product", torch.kron, _L, a=normal(2, 2), b=normal(2, 3)),
    specimen(
        "einsum of three",
        lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c),
        _L,
        a=normal(2, 3),
        b=normal(3, 2),
        c=normal(2, 2),
    ),
    specimen(
        "einsum with a trace", lambda a, b: torch.einsum("bii,bij->bj", a, b), _L, a=normal(2, 3, 3), b=normal(2, 3, 2)
    ),
    specimen(
        "bilinear", torch.nn.functional.bilinear, _L, x=normal(2, 3), y=normal(2, 2), w=normal(4, 3, 2), b=normal(4)
    ),
    specimen("linear with bias", torch.nn.functional.linear, _L, x=normal(3, 4), w=normal(2, 4), b=normal(2)),
    specimen("badly scaled factors", torch.matmul, _L, "scaled", a=normal(3, 3, scale=1e6), b=normal(3, 3, scale=1e-6)),
    specimen(
        "row scales of 10 decades",
        lambda a, x: (a * torch.tensor([1e-5, 1.0, 1e5])) @ x,
        _L,
        "scaled",
        a=normal(3, 3),
        x=normal(3, 2),
    ),
    specimen("householder reflection", lambda v, x: x - 2 * v * (v @ x) / (v @ v), _L, v=normal(4), x=normal(4)),
    specimen("gram-schmidt", lambda a: _gram_schmidt(a), _L, a=normal(3, 3)),
    specimen("mahalanobis", lambda x, a: (x @ torch.linalg.solve(spd(a), x)).sqrt(), _L, x=normal(3), a=normal(3, 3)),
    specimen(
        "gaussian log density",
        lambda x, m, s: torch.distributions.MultivariateNormal(
            m, scale_tril=s.tril(-1) + s.diag().abs().diag(), validate_args=False
        ).log_prob(x),
        _L,
        x=normal(2, 3),
        m=normal(3),
        s=normal(3, 3),
    ),
    specimen(
        "power iteration",
        lambda a, x: _power_iteration(symmetric(a), x),
        _L,
        a=normal(3, 3),
        x=fixed(1.0, 0.5, -0.2, dtype=torch.float64),
    ),
    specimen("newton-schulz square root", lambda a: _newton_schulz(spd(a)), _L, a=normal(3, 3, scale=0.3)),
    specimen(
        "woodbury", lambda u, d: torch.linalg.inv(torch.diag(d) + u @ u.mT), _L, u=normal(4, 2), d=uniform(0.5, 2, 4)
    ),
)


def _projector(a: Tensor) -> Tensor:
    vector = torch.linalg.eigh(a).eigenvectors[:, -1]
    return torch.outer(vector, vector)


def _gram_schmidt(a: Tensor) -> Tensor:
    done: list[Tensor] = []
    for column in a.unbind(1):
        rest = column
        for basis in done:
            rest = rest - (basis @ column) * basis
        done.append(rest / rest.norm())
    return torch.stack(done, 1)


def _power_iteration(a: Tensor, x: Tensor) -> Tensor:
    for _ in range(5):
        x = a @ x
        x = x / x.norm()
    return x @ a @ x


def _newton_schulz(a: Tensor) -> Tensor:
    size = torch.linalg.matrix_norm(a)
    y, z = a / size, torch.eye(a.shape[0], dtype=a.dtype)
    for _ in range(8):
        step = (3 * torch.eye(a.shape[0], dtype=a.dtype) - z @ y) / 2
        y, z = y @ step, step @ z
    return y * size.sqrt()
