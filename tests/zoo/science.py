"""Special functions, splines, functions of physics, distances."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.zoo.specimen import Specimen, at, diagonal, fixed, normal, specimen, uniform

_F, _P = "special function", "science"


def _pairs(x: Tensor) -> Tensor:
    first, second = torch.triu_indices(len(x), len(x), 1)
    return (x[first] - x[second]).norm(dim=1)


def _lennard_jones(x: Tensor) -> Tensor:
    inverse = _pairs(x) ** -6
    return (4 * (inverse * inverse - inverse)).sum()


def _cubic_b_spline(x: Tensor, c: Tensor) -> Tensor:
    place = x.detach().floor().long().clamp(0, len(c) - 4)
    t = (x - place).unsqueeze(-1)
    basis = torch.cat([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3], -1) / 6
    return (basis * c[place.unsqueeze(-1) + torch.arange(4)]).sum(-1)


def _runge_kutta(y: Tensor, mu: Tensor) -> Tensor:
    def slope(state: Tensor) -> Tensor:
        return torch.stack([state[1], mu * (1 - state[0] ** 2) * state[1] - state[0]])

    for _ in range(10):
        a = slope(y)
        b = slope(y + 0.05 * a)
        c = slope(y + 0.05 * b)
        d = slope(y + 0.1 * c)
        y = y + 0.1 / 6 * (a + 2 * b + 2 * c + d)
    return y


def _black_scholes(s: Tensor, k: Tensor, v: Tensor) -> Tensor:
    first = ((s / k).log() + v * v / 2) / v
    cdf = torch.special.ndtr
    return s * cdf(first) - k * cdf(first - v)


def _sh(x: Tensor) -> Tensor:
    a, b, c = x.unbind(-1)
    return torch.stack([a * b, b * c, 3 * c * c - 1, a * c, a * a - b * b, a * (a * a - 3 * b * b)], -1)


def _rotation(v: Tensor) -> Tensor:
    angle = v.norm()
    zero = torch.zeros((), dtype=v.dtype)
    k = torch.stack([zero, -v[2], v[1], v[2], zero, -v[0], -v[1], v[0], zero]).reshape(3, 3)
    return torch.eye(3, dtype=v.dtype) + angle.sin() / angle * k + (1 - angle.cos()) / angle**2 * k @ k


def _ssim(x: Tensor, y: Tensor) -> Tensor:
    mx, my = x.mean(), y.mean()
    vx, vy, vxy = x.var(), y.var(), ((x - mx) * (y - my)).sum() / (x.numel() - 1)
    return (2 * mx * my + 1e-4) * (2 * vxy + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))


def _render(density: Tensor, colour: Tensor) -> Tensor:
    alpha = 1 - (-density.exp() * 0.3).exp()
    through = torch.cat([torch.ones(1, dtype=alpha.dtype), (1 - alpha).cumprod(0)[:-1]])
    return (alpha * through) @ colour


def _sinkhorn(cost: Tensor) -> Tensor:
    f = g = torch.zeros(len(cost), dtype=cost.dtype)
    for _ in range(6):
        f = -(0.5 * ((g - cost) / 0.5).logsumexp(1))
        g = -(0.5 * ((f[:, None] - cost) / 0.5).logsumexp(0))
    return ((f[:, None] + g - cost) / 0.5).exp()


def _soft_dtw(d: Tensor) -> Tensor:
    big = torch.tensor(1e6, dtype=d.dtype)
    table = {(i, j): big for i in range(4) for j in range(4)} | {(0, 0): torch.zeros((), dtype=d.dtype)}
    for i in range(1, 4):
        for j in range(1, 4):
            before = torch.stack([table[i - 1, j], table[i, j - 1], table[i - 1, j - 1]])
            table[i, j] = d[i - 1, j - 1] - (-before).logsumexp(0)
    return table[3, 3]


SCIENCE: tuple[Specimen, ...] = (
    specimen("lgamma", torch.lgamma, _F, x=uniform(0.5, 5, 4), exact=diagonal(torch.digamma)),
    specimen(
        "digamma",
        torch.digamma,
        _F,
        x=uniform(0.5, 5, 4),
        exact=diagonal(lambda x: torch.special.zeta(torch.full_like(x, 2.0), x)),
    ),
    specimen("tetragamma", lambda x: torch.polygamma(2, x), _F, x=uniform(0.5, 5, 3)),
    specimen("multigammaln", lambda x: torch.mvlgamma(x, 2), _F, x=uniform(1, 5, 3)),
    specimen("Bessel i0", torch.i0, _F, x=normal(4, scale=2), exact=diagonal(torch.special.i1)),
    specimen("Bessel i0e", torch.special.i0e, _F, x=at(0.5, 8.5, -3.0)),
    specimen("Bessel i1", torch.special.i1, _F, x=at(0.5, 3.0, -2.0)),
    specimen("ndtri", torch.special.ndtri, _F, x=at(0.01, 0.5, 0.99)),
    specimen("log_ndtr in the tail", torch.special.log_ndtr, _F, x=at(-10.0, 0.0, 5.0)),
    specimen("erfcx", torch.special.erfcx, _F, x=at(0.5, 3.0, -1.0)),
    specimen("entr", torch.special.entr, _F, x=uniform(0.01, 2, 4)),
    specimen("zeta by shift", lambda x: torch.special.zeta(torch.full_like(x, 2.5), x), _F, x=uniform(1, 3, 3)),
    specimen("distance matrix", torch.cdist, _P, x=normal(3, 2), y=normal(2, 2)),
    specimen("1-distance matrix", lambda x, y: torch.cdist(x, y, p=1.0), _P, x=normal(3, 2), y=normal(2, 2)),
    specimen(
        "distances of points nearly equal",
        torch.cdist,
        _P,
        x=at([0.0, 0.0], [1.0, 1.0]),
        y=at([1e-6, 0.0], [1.0, 1.001]),
    ),
    specimen("pairwise distances", torch.pdist, _P, x=normal(4, 2)),
    specimen(
        "gaussian kernel", lambda x, s: (-torch.cdist(x, x).square() / s**2).exp().sum(), _P, x=normal(3, 2), s=at(1.3)
    ),
    specimen("Lennard-Jones", _lennard_jones, _P, "scaled", x=at([0.0, 0.0, 0.0], [1.1, 0.0, 0.1], [0.2, 1.2, 0.0])),
    specimen(
        "Lennard-Jones too close", _lennard_jones, _P, "scaled", x=at([0.0, 0.0, 0.0], [0.3, 0.0, 0.1], [0.2, 1.2, 0.0])
    ),
    specimen("Coulomb energy", lambda x, q: (q[0] * q[1] / _pairs(x)).sum(), _P, x=normal(2, 3), q=normal(2)),
    specimen("Morse", lambda r: (1 - (-2 * (r - 1)).exp()) ** 2, _P, r=at(0.7, 1.0, 1.4)),
    specimen("Planck", lambda v, t: v**3 / ((v / t).exp() - 1), _P, v=at(0.5, 3.0, 30.0), t=at(1.0)),
    specimen(
        "Arrhenius",
        lambda a, e, t: a * (-e / (8.314 * t)).exp(),
        _P,
        "scaled",
        a=at(1e13),
        e=at(8e4),
        t=at(300.0, 500.0),
    ),
    specimen(
        "van der Waals", lambda v, t: 8.314 * t / (v - 4e-5) - 0.14 / v**2, _P, "scaled", v=at(1e-3, 2e-4), t=at(300.0)
    ),
    specimen("pendulum by Runge-Kutta", _runge_kutta, _P, y=normal(2), mu=at(0.8)),
    specimen("logistic map", lambda x: _iterated(x), _P, x=at(0.3, 0.6)),
    specimen("B-spline", _cubic_b_spline, _P, x=uniform(0.1, 2.9, 4), c=normal(6)),
    specimen("B-spline on a knot", _cubic_b_spline, _P, x=at(1.0, 2.0), c=normal(6)),
    specimen(
        "natural cubic polynomial", lambda x, c: ((c[3] * x + c[2]) * x + c[1]) * x + c[0], _P, x=normal(4), c=normal(4)
    ),
    specimen(
        "Chebyshev series",
        lambda x, c: sum(c[k] * (k * x.acos()).cos() for k in range(5)),
        _P,
        x=uniform(-0.8, 0.8, 3),
        c=normal(5),
    ),
    specimen("Black-Scholes", _black_scholes, _P, s=at(100.0), k=at(95.0), v=at(0.2)),
    specimen("real spherical harmonics", _sh, _P, x=normal(3, 3)),
    specimen("rotation vector", _rotation, _P, v=normal(3)),
    specimen("rotation vector of 1e-4", _rotation, _P, v=at(1e-4, -2e-4, 5e-5)),
    specimen("quaternion product", lambda p, q: _quaternion(p, q), _P, p=normal(4), q=normal(4)),
    specimen("structural similarity", _ssim, _P, x=uniform(0, 1, 6), y=uniform(0, 1, 6)),
    specimen("volume rendering", _render, _P, d=normal(5), c=normal(5, 2)),
    specimen("Sinkhorn", _sinkhorn, _P, c=uniform(0, 1, 3, 3)),
    specimen("soft dynamic time warping", _soft_dtw, _P, d=uniform(0, 1, 3, 3)),
    specimen("pinhole projection", lambda p, f: f * p[:, :2] / p[:, 2:], _P, p=normal(3, 3, shift=4), f=at(500.0)),
    specimen("great circle", lambda a, b: _haversine(a, b), _P, a=at(0.8, 0.1), b=at(0.7, -1.2)),
    specimen("great circle nearby", lambda a, b: _haversine(a, b), _P, a=at(0.8, 0.1), b=at(0.8001, 0.1001)),
    specimen("heat equation", lambda u, k: _heat(u, k), _P, u=normal(6), k=at(0.2)),
    specimen("intersection over union", lambda a: _iou(a), _P, a=at([0.1, 0.2, 1.0, 1.1])),
    specimen(
        "Student t density",
        lambda x, n: (
            torch.lgamma((n + 1) / 2)
            - torch.lgamma(n / 2)
            - (n * math.pi).log() / 2
            - (n + 1) / 2 * (1 + x * x / n).log()
        ),
        _P,
        x=normal(3),
        n=at(3.5),
    ),
    specimen(
        "beta log density",
        lambda x, a, b: torch.distributions.Beta(a, b, validate_args=False).log_prob(x),
        _P,
        x=uniform(0.1, 0.9, 3),
        a=at(2.0),
        b=at(0.7),
    ),
    specimen(
        "mixture of gaussians",
        lambda x, m, w: ((-((x[:, None] - m) ** 2) / 2) + w.log_softmax(0)).logsumexp(1),
        _P,
        x=normal(3),
        m=normal(2),
        w=normal(2),
    ),
    specimen(
        "kalman update",
        lambda p, h, z: (p @ h) / (h @ p @ h + 1) * z,
        _P,
        p=normal(2, 2, shift=1),
        h=uniform(0.5, 1, 2),
        z=at(0.4),
    ),
    specimen(
        "soft histogram",
        lambda x, e: (((x[:, None] - e) * 10).sigmoid()).sum(0),
        _P,
        x=normal(5),
        e=fixed(-1.0, 0.0, 1.0, dtype=torch.float64),
    ),
)


def _iterated(x: Tensor) -> Tensor:
    for _ in range(12):
        x = 3.7 * x * (1 - x)
    return x


def _quaternion(p: Tensor, q: Tensor) -> Tensor:
    a, b, c, d = p
    e, f, g, h = q
    return torch.stack(
        [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ]
    )


def _haversine(a: Tensor, b: Tensor) -> Tensor:
    squared = ((a[0] - b[0]) / 2).sin() ** 2 + a[0].cos() * b[0].cos() * ((a[1] - b[1]) / 2).sin() ** 2
    return 2 * 6371.0 * squared.sqrt().asin()


def _heat(u: Tensor, k: Tensor) -> Tensor:
    for _ in range(4):
        u = u + k * (u.roll(1) + u.roll(-1) - 2 * u)
    return u


def _iou(box: Tensor) -> Tensor:
    other = torch.tensor([0.3, 0.4, 1.3, 1.5], dtype=box.dtype)
    low, high = torch.maximum(box[:2], other[:2]), torch.minimum(box[2:], other[2:])
    shared = (high - low).clamp(min=0).prod()
    return shared / ((box[2:] - box[:2]).prod() + (other[2:] - other[:2]).prod() - shared)
