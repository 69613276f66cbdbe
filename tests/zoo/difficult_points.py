"""Bad scaling, saturation, edges of the domain, noise, low precision, and NaN or infinite values."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tests.zoo.specimen import Specimen, at, diagonal, fixed, normal, specimen, spread, uniform

_S, _E, _NOISE = "scaled", "edge", "noisy"
_COARSE = "the forward is too coarse for a derivative within a thousandth"


def _shaken(x: Tensor, size: float) -> Tensor:
    """Return x with a deterministic relative error of `size`, like the result of an iterative solver."""
    with torch.no_grad():
        error = size * x * torch.sin(x * 1e21)
    return x + error


def _single(x: Tensor) -> Tensor:
    return x.float().sin().double()


def _kepler_slope(m: Tensor) -> Tensor:
    e = m.detach()
    for _ in range(200):
        e = m.detach() + 0.5 * e.sin()
    return torch.diag(1 / (1 - 0.5 * e.cos()))


SCALED: tuple[Specimen, ...] = (
    *(
        specimen(
            f"mask of {fill:.2g}, differentiated too",
            lambda x, mask: (x + mask).logsumexp(-1),
            _S,
            x=at(0.3, 0.5, 0.7, 0.9),
            mask=at(0.0, 0.0, fill, fill),
        )
        for fill in (-1e9, -1e20, -1e30, float(torch.finfo(torch.float64).min))
    ),
    specimen("inputs of 1e-12 beside 1", lambda x: x.square().sum() + x.sum(), _S, x=at(1e-12, 1.0, -1.0)),
    # torch computes the second derivative as a difference of two terms of 1e12: 5e-4 instead of zero
    specimen("product of 1e-12 and 1", lambda x: x.prod(), _S, "wrong at order 2", x=at(1e-12, 1.3, -2.7)),
    specimen("sin of 1e-12 beside 1", torch.sin, _S, x=at(1e-12, 1.0, 2.0), exact=diagonal(torch.cos)),
    specimen("log of 1e-12 beside 1", torch.log, _S, x=at(1e-12, 1.0, 2.0), exact=diagonal(lambda x: 1 / x)),
    specimen(
        "log over 20 decades", lambda x: x.abs().log(), _S, x=spread(1e-10, 1e10, 9), exact=diagonal(lambda x: 1 / x)
    ),
    specimen("exp of 1e-9 beside 5", torch.exp, _S, x=at(1e-9, 5.0), exact=diagonal(torch.exp)),
    specimen("matmul of scales 1e6 and 1e-6", lambda a, b: (1e6 * a) @ (1e-6 * b), _S, a=normal(2, 3), b=normal(3, 2)),
    specimen(
        "outputs of scales 1 and 1e-9", lambda x: torch.stack([x.sin().sum(), 1e-9 * x.cos().sum()]), _S, x=normal(4)
    ),
    specimen(
        "outputs of scales 1 and 1e9", lambda x: torch.stack([x.sin().sum(), 1e9 * x.cos().sum()]), _S, x=normal(4)
    ),
    specimen("gradient of 1e-6", lambda x: 1e-6 * x.sin(), _S, x=normal(4), exact=diagonal(lambda x: 1e-6 * x.cos())),
    specimen(
        "gradient of 1e-20", lambda x: 1e-20 * x.sin(), _S, x=normal(4), exact=diagonal(lambda x: 1e-20 * x.cos())
    ),
    specimen("gradient of 1e20", lambda x: 1e20 * x.sin(), _S, x=normal(4), exact=diagonal(lambda x: 1e20 * x.cos())),
    specimen(
        "small slope on a large offset",
        lambda x: 1e6 + 1e-3 * x.sin(),
        _S,
        x=normal(4),
        exact=diagonal(lambda x: 1e-3 * x.cos()),
    ),
    specimen("weight of 1e-8 in a sum", lambda x, w: x @ w, _S, x=normal(3), w=at(1.0, 1e-8, 1e4)),
    specimen("Rosenbrock", lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(), _S, x=normal(5)),
    specimen(
        "Rosenbrock at its minimum",
        lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(),
        _S,
        "zero gradient",
        x=at(1.0, 1.0, 1.0),
    ),
    specimen("inputs of 1e150", lambda x: (x * 1e-150).sin(), _S, x=at(1e150, -2e150)),
    specimen("inputs of 1e-150", lambda x: (x * 1e150).sin(), _S, x=at(1e-150, -2e-150)),
    specimen("Coulomb near and far", lambda r: (1 / r).sum(), _S, r=at(1e-3, 1.0, 1e3)),
    specimen("temperature and pressure", lambda t, p: p * 1e5 / (8.314 * t), _S, t=at(300.0), p=at(1.013)),
    specimen("unit mix of nm and km", lambda a, b: (a * 1e9).sin() * (b / 1e3), _S, a=at(1.2e-9, 3e-9), b=at(2e3, 5e3)),
    specimen(
        "sigmoid saturated",
        torch.sigmoid,
        _S,
        "saturated",
        x=at(40.0, -40.0, 0.0),
        exact=diagonal(lambda x: x.sigmoid() * (-x).sigmoid()),
    ),
    specimen("tanh saturated", torch.tanh, _S, "saturated", x=at(19.0, -22.0, 1.0)),
    specimen("tanh saturated alone", torch.tanh, _S, "saturated", x=at(15.0)),
    specimen(
        "softplus saturated",
        functional.softplus,
        _S,
        "saturated",
        x=at(30.0, -30.0, -600.0),
        exact=diagonal(torch.sigmoid),
    ),
    specimen("exp underflowing", torch.exp, _S, "saturated", x=at(-700.0, -745.0, 0.0)),
    specimen(
        "gaussian tail",
        lambda x: (-x * x).exp(),
        _S,
        "saturated",
        x=at(6.0, 12.0, 0.5),
        exact=diagonal(lambda x: -2 * x * (-x * x).exp()),
    ),
    specimen("erf saturated", torch.erf, _S, "saturated", x=at(5.5, -7.0, 0.2)),
    specimen("1e-300 outputs", lambda x: x * 1e-300, _S, x=normal(3)),
    specimen("denormal outputs", lambda x: x * 1e-310, _S, x=normal(3)),
)

EDGES: tuple[Specimen, ...] = (
    specimen("sqrt at zero", torch.sqrt, _E, "borderline", x=at([0.0])),
    specimen("x^1.5 at zero", lambda x: x**1.5, _E, x=at([0.0])),
    specimen("x log x near zero", lambda x: x * x.log(), _E, x=at(1e-7, 0.5)),
    specimen("log just inside", lambda x: (x - 1).log(), _E, x=at(1 + 1e-6, 1.01, 2.0)),
    specimen("sqrt(x - 1) just inside", lambda x: (x - 1).sqrt(), _E, x=at(1 + 1e-8, 1.001, 5.0)),
    specimen("acos near 1", torch.acos, _E, x=at(1 - 1e-6, 0.0)),
    specimen("log1p near -1", torch.log1p, _E, "borderline", x=at(-1 + 1e-9, 0.0)),
    specimen("(x - 1)^2.5 on the edge", lambda x: (x - 1) ** 2.5, _E, "on an edge", x=at(1.0, 2.0)),
    specimen("edge with slope", lambda x: torch.where(x >= 1, x.sin(), torch.nan), _E, "on an edge", x=at(1.0, 1.5)),
    specimen(
        "edge with slope on the left",
        lambda x: torch.where(x <= 1, x.exp(), torch.nan),
        _E,
        "on an edge",
        x=at(1.0, 0.5),
    ),
    specimen("edge 1e-5 away", lambda x: torch.where(x >= 1, x.sin(), torch.nan), _E, x=at(1 + 1e-5)),
    specimen("edge that raises", lambda x: _strict(x), _E, "on an edge", x=at(1.0)),
    specimen("overflow on one side", lambda x: x.exp(), _E, "borderline", x=at(709.7), exact=diagonal(torch.exp)),
    specimen("interior of a thin domain", lambda x: ((x - 1) * (1.001 - x)).log(), _E, x=at(1.0004)),
    specimen("xlogy at zero", lambda x: torch.xlogy(x, torch.full_like(x, 2.0)), _E, x=at(0.0, 1.0)),
    specimen("lgamma near a pole", torch.lgamma, _E, x=at(1e-4, 2.0, -1.0001)),
)

NOISY: tuple[Specimen, ...] = (
    specimen("float32 inside", _single, _NOISE, x=normal(4)),
    specimen(
        "float32 matmul inside", lambda a, b: (a.float() @ b.float()).double(), _NOISE, a=normal(3, 3), b=normal(3, 3)
    ),
    specimen("float32 softmax inside", lambda x: x.float().softmax(-1).double(), _NOISE, x=normal(2, 4)),
    specimen("float32 output of float64 inputs", lambda x: x.float().exp(), _NOISE, x=normal(4)),
    specimen("float16 inside", lambda x: (x.half() * 1.5).tanh().double(), _NOISE, x=normal(4)),
    specimen("bfloat16 inside", lambda x: (x.bfloat16() * 1.5).tanh().double(), _NOISE, x=normal(4)),
    specimen("noise of 1e-11", lambda x: _shaken(x.sin(), 1e-11), _NOISE, x=normal(4), exact=diagonal(torch.cos)),
    specimen("noise of 1e-7", lambda x: _shaken(x.sin(), 1e-7), _NOISE, x=normal(4), exact=diagonal(torch.cos)),
    specimen(
        "noise of 1e-3",
        lambda x: _shaken(x.sin(), 1e-3),
        _NOISE,
        x=normal(4),
        exact=diagonal(torch.cos),
        inconclusive=_COARSE,
    ),
    specimen("rounded to 9 decimals", lambda x: x + (x.detach().round(decimals=9) - x.detach()), _NOISE, x=normal(4)),
    specimen("quantised to 2^-20", lambda x: _quantised(x.sin()), _NOISE, x=normal(4), exact=diagonal(torch.cos)),
    specimen("float32 throughout", torch.sin, _NOISE, "float32", x=normal(4, dtype=torch.float32)),
    specimen(
        "float32 layer norm",
        lambda x: functional.layer_norm(x, (4,)),
        _NOISE,
        "float32",
        x=normal(2, 4, dtype=torch.float32),
    ),
    specimen(
        "float16 throughout", lambda x: x * x + x, _NOISE, "float16", "borderline", x=normal(4, dtype=torch.float16)
    ),
    specimen(
        "bfloat16 throughout", lambda x: x * x + x, _NOISE, "bfloat16", "borderline", x=normal(4, dtype=torch.bfloat16)
    ),
    specimen(
        "mixed float32 and float64", lambda x, y: x.double() * y, _NOISE, x=normal(3, dtype=torch.float32), y=normal(3)
    ),
    specimen(
        "fixed point solved to 1e-10",
        lambda x: _kepler(x),
        _NOISE,
        "wrong at order 2",
        x=uniform(0.5, 2.5, 3),
        exact=_kepler_slope,
    ),
    specimen(
        "catastrophic cancellation", lambda x: (x + 1e7) - 1e7, _NOISE, x=normal(3), exact=diagonal(torch.ones_like)
    ),
    specimen("difference of squares", lambda x: (x + 1e4) ** 2 - 1e8, _NOISE, x=normal(3)),
    specimen(
        "constant by cancellation",
        lambda x: (1 + x * x).sqrt() - 1,
        _NOISE,
        x=at(1e-12, -2.3e-12),
        inconclusive="the output is constant at small steps, and large ones show a slope",
    ),
    specimen(
        "waves shorter than any step",
        lambda x: torch.sin(1e3 * torch.sin(1e12 * x)),
        _NOISE,
        x=normal(3),
        inconclusive="the function varies within the smallest step",
    ),
    specimen("ripple far from zero", lambda x: 30 * x + (100 * x).sin().square() / 100, _NOISE, x=at(1.18743e6)),
    specimen(
        "NaN in one output",
        lambda x: torch.stack([x.sin().sum(), (x.sum() - x.sum() - 1).log()]),
        _NOISE,
        "not finite",
        x=normal(3),
        inconclusive="one output is not a number",
    ),
    specimen(
        "inf beside numbers",
        lambda x, b: x.square() + b,
        _NOISE,
        "not finite",
        x=normal(3),
        b=fixed(0.0, float("inf"), 0.0, dtype=torch.float64),
        inconclusive="one output is infinite",
    ),
    specimen(
        "-inf mask in the output",
        lambda x, m: x.masked_fill(m, -torch.inf),
        _NOISE,
        "not finite",
        x=normal(3),
        m=fixed(False, True, False),
    ),
    specimen("random forward", lambda x: x * torch.rand(3, dtype=x.dtype), _NOISE, "random", x=normal(3)),
    specimen("dropout", lambda x: functional.dropout(x, 0.5), _NOISE, "random", x=normal(5)),
)


def _strict(x: Tensor) -> Tensor:
    if bool((x.detach() < 1).any()):
        raise ValueError("x must be at least 1")
    return x.sin()


def _quantised(x: Tensor) -> Tensor:
    with torch.no_grad():
        error = (x * 2**20).round() / 2**20 - x
    return x + error


def _kepler(m: Tensor) -> Tensor:
    """Return e with e - 0.5 sin e = m, by iteration to 1e-10; a last Newton step makes the derivative right."""
    with torch.no_grad():
        e = m.clone()
        for _ in range(200):
            if bool((e - 0.5 * e.sin() - m).abs().max() <= 1e-10):
                break
            e = m + 0.5 * e.sin()
    residual = e - 0.5 * e.sin() - m
    return e - residual / (1 - 0.5 * e.cos())
