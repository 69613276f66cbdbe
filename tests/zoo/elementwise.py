"""Elementwise functions at ordinary and at difficult points, with exact derivatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from tests.zoo.specimen import Specimen, at, diagonal, normal, specimen, spread, uniform


def _bell(x: Tensor) -> Tensor:
    return 2 / math.sqrt(math.pi) * torch.exp(-x * x)


def _gaussian(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _normal_cdf(x: Tensor) -> Tensor:
    return (1 + torch.erf(x / math.sqrt(2))) / 2


_ELEMENT = "elementwise"

ELEMENTWISE: tuple[Specimen, ...] = (
    specimen("sin", torch.sin, _ELEMENT, x=normal(8, scale=3), exact=diagonal(torch.cos)),
    specimen("cos at zero", torch.cos, _ELEMENT, x=at(0.0, 1e-9, 1.0), exact=diagonal(lambda x: -x.sin())),
    specimen(
        "tan near its pole", torch.tan, _ELEMENT, x=at(1.5, 1.57, -1.5), exact=diagonal(lambda x: 1 / x.cos() ** 2)
    ),
    specimen("exp", torch.exp, _ELEMENT, x=normal(8), exact=diagonal(torch.exp)),
    specimen(
        "exp(10x)", lambda x: (10 * x).exp(), _ELEMENT, x=normal(6), exact=diagonal(lambda x: 10 * (10 * x).exp())
    ),
    specimen("exp at 50", torch.exp, _ELEMENT, x=at(50.0, -50.0, 20.0), exact=diagonal(torch.exp)),
    specimen("expm1 near zero", torch.expm1, _ELEMENT, x=at(1e-10, -1e-10, 1e-3), exact=diagonal(torch.exp)),
    specimen("log at 1e-5", torch.log, _ELEMENT, x=at(1e-5, 2e-5, 1.0), exact=diagonal(lambda x: 1 / x)),
    specimen("log at 1e-200", torch.log, _ELEMENT, x=at(1e-200), exact=diagonal(lambda x: 1 / x)),
    specimen("log at 1", torch.log, _ELEMENT, x=at(1.0, 1 + 1e-9), exact=diagonal(lambda x: 1 / x)),
    specimen("log1p", torch.log1p, _ELEMENT, x=at(1e-9, -0.999, 3.0), exact=diagonal(lambda x: 1 / (1 + x))),
    specimen("log2 and log10", lambda x: x.log2() + x.log10(), _ELEMENT, x=uniform(0.5, 3, 5)),
    specimen("x² at 1e8", torch.square, _ELEMENT, x=at(1e8, -1e8, 1.0), exact=diagonal(lambda x: 2 * x)),
    specimen("x² at zero", torch.square, _ELEMENT, x=at(0.0, 1e-9, -1e-9), exact=diagonal(lambda x: 2 * x)),
    specimen("x³ at zero", lambda x: x**3, _ELEMENT, x=at(0.0, 1e-5, 1.0), exact=diagonal(lambda x: 3 * x * x)),
    specimen("x⁷", lambda x: x**7, _ELEMENT, x=normal(5), exact=diagonal(lambda x: 7 * x**6)),
    specimen("1e8 + sin", lambda x: 1e8 + x.sin(), _ELEMENT, x=normal(5), exact=diagonal(torch.cos)),
    specimen(
        "sin(1000x)",
        lambda x: (1000 * x).sin(),
        _ELEMENT,
        x=normal(5),
        exact=diagonal(lambda x: 1000 * (1000 * x).cos()),
    ),
    specimen("sin at 1e6", torch.sin, _ELEMENT, x=at(1e6, 1e6 + 1, -3e6), exact=diagonal(torch.cos)),
    specimen("sin at 1e10", torch.sin, _ELEMENT, "borderline", x=at(1e10), exact=diagonal(torch.cos)),
    specimen(
        "sin(1/x)",
        lambda x: (1 / x).sin(),
        _ELEMENT,
        x=at(0.01, 0.003, 1.0),
        exact=diagonal(lambda x: -(1 / x).cos() / x**2),
    ),
    specimen("sqrt at 1e-8", torch.sqrt, _ELEMENT, x=at(1e-8, 1e-4, 1.0), exact=diagonal(lambda x: 0.5 / x.sqrt())),
    specimen("sqrt at 1e-16 alone", torch.sqrt, _ELEMENT, x=at(1e-16), exact=diagonal(lambda x: 0.5 / x.sqrt())),
    specimen("rsqrt", torch.rsqrt, _ELEMENT, x=at(1e-6, 0.3, 40.0), exact=diagonal(lambda x: -0.5 * x**-1.5)),
    specimen(
        "x^1.5 near 0", lambda x: x**1.5, _ELEMENT, x=at(1e-8, 1e-4, 1.0), exact=diagonal(lambda x: 1.5 * x.sqrt())
    ),
    specimen("cube root", lambda x: x ** (1 / 3), _ELEMENT, x=at(1e-6, 0.1, 8.0)),
    specimen("1/x at 1e-4", torch.reciprocal, _ELEMENT, x=at(1e-4, -1e-4, 1.0), exact=diagonal(lambda x: -1 / x**2)),
    specimen("1/x at 1e-4 alone", torch.reciprocal, _ELEMENT, x=at(1e-4), exact=diagonal(lambda x: -1 / x**2)),
    specimen("1/(1+x²)", lambda x: 1 / (1 + x * x), _ELEMENT, x=normal(6, scale=4)),
    specimen("Runge with width 1e-3", lambda x: 1 / (1e-6 + (x - 1) ** 2), _ELEMENT, x=at(1.0005, 1.002, 2.0)),
    specimen("tanh", torch.tanh, _ELEMENT, x=normal(6), exact=diagonal(lambda x: 1 / x.cosh() ** 2)),
    specimen(
        "sinh and cosh", lambda x: x.sinh() * x.cosh(), _ELEMENT, x=normal(5), exact=diagonal(lambda x: (2 * x).cosh())
    ),
    specimen(
        "asin near 1",
        torch.asin,
        _ELEMENT,
        x=at(0.999999, -0.5, 0.0),
        exact=diagonal(lambda x: ((1 - x) * (1 + x)).rsqrt()),
    ),
    specimen(
        "acos", torch.acos, _ELEMENT, x=uniform(-0.9, 0.9, 5), exact=diagonal(lambda x: -((1 - x) * (1 + x)).rsqrt())
    ),
    specimen("atan at 1e5", torch.atan, _ELEMENT, x=at(1e5, 1.0, -1e-5), exact=diagonal(lambda x: 1 / (1 + x * x))),
    specimen("asinh", torch.asinh, _ELEMENT, x=at(1e4, -0.3, 1e-7), exact=diagonal(lambda x: (1 + x * x).rsqrt())),
    specimen(
        "acosh near 1", torch.acosh, _ELEMENT, x=at(1.0001, 2.0), exact=diagonal(lambda x: ((x - 1) * (x + 1)).rsqrt())
    ),
    specimen(
        "atanh near 1", torch.atanh, _ELEMENT, x=at(0.9999, 0.1), exact=diagonal(lambda x: 1 / ((1 - x) * (1 + x)))
    ),
    specimen("atan2", torch.atan2, _ELEMENT, y=normal(5), x=normal(5)),
    specimen("sinc near 0", torch.sinc, _ELEMENT, x=at(1e-3, 0.5, 3.2)),
    specimen("erf", torch.erf, _ELEMENT, x=normal(5), exact=diagonal(_bell)),
    specimen("erfc at 3", torch.erfc, _ELEMENT, x=at(3.0, 0.0, 5.0), exact=diagonal(lambda x: -_bell(x))),
    specimen("erfc at 20 alone", torch.erfc, _ELEMENT, x=at(20.0), exact=diagonal(lambda x: -_bell(x))),
    specimen("erfinv", torch.erfinv, _ELEMENT, x=at(0.0, 0.9, -0.9999)),
    specimen(
        "sigmoid", torch.sigmoid, _ELEMENT, x=normal(6, scale=3), exact=diagonal(lambda x: x.sigmoid() * (-x).sigmoid())
    ),
    specimen("logit", torch.logit, _ELEMENT, x=at(1e-6, 0.5, 0.9999), exact=diagonal(lambda x: 1 / (x * (1 - x)))),
    specimen("silu", functional.silu, _ELEMENT, x=normal(6, scale=3)),
    specimen("mish", functional.mish, _ELEMENT, x=normal(6, scale=3)),
    specimen(
        "gelu",
        functional.gelu,
        _ELEMENT,
        x=normal(6, scale=2),
        exact=diagonal(lambda x: _normal_cdf(x) + x * _gaussian(x)),
    ),
    specimen("gelu tanh", lambda x: functional.gelu(x, approximate="tanh"), _ELEMENT, x=normal(6, scale=2)),
    specimen("softplus", functional.softplus, _ELEMENT, x=normal(6, scale=4), exact=diagonal(torch.sigmoid)),
    specimen(
        "softplus beta 50",
        lambda x: functional.softplus(x, beta=50, threshold=1e9),
        _ELEMENT,
        x=at(0.0, 0.01, -0.02, 1.0),
    ),
    specimen(
        "logsigmoid", functional.logsigmoid, _ELEMENT, x=normal(5, scale=5), exact=diagonal(lambda x: (-x).sigmoid())
    ),
    specimen("softsign away from 0", functional.softsign, _ELEMENT, x=at(0.5, -2.0, 1e-3)),
    specimen(
        "tanhshrink near 0",
        functional.tanhshrink,
        _ELEMENT,
        x=at(1e-4, 0.3, -1.0),
        exact=diagonal(lambda x: x.tanh() ** 2),
    ),
    specimen("power with both", torch.pow, _ELEMENT, x=uniform(0.3, 3, 4), p=normal(4)),
    specimen("xlogy", torch.xlogy, _ELEMENT, x=uniform(0.1, 2, 4), y=uniform(0.1, 2, 4)),
    specimen("hypot near 0", torch.hypot, _ELEMENT, x=at(1e-8, 3.0), y=at(1e-9, 4.0)),
    specimen("logaddexp far apart", torch.logaddexp, _ELEMENT, x=at(0.0, 150.0, 1.0), y=at(0.0, -150.0, 1.0001)),
    specimen("lerp", torch.lerp, _ELEMENT, x=normal(4), y=normal(4), w=normal(4)),
    specimen("addcdiv", torch.addcdiv, _ELEMENT, x=normal(4), y=normal(4), z=uniform(0.5, 2, 4)),
    specimen("polynomial of degree 12", lambda x: torch.stack([x**k for k in range(13)]).sum(0), _ELEMENT, x=normal(4)),
    specimen("cancelling (1 - cos x)/x²", lambda x: (1 - x.cos()) / x**2, _ELEMENT, x=at(0.01, 0.1, 1.0)),
    specimen("constant", lambda x: x * 0 + 3, _ELEMENT, x=normal(3), exact=diagonal(torch.zeros_like)),
    specimen(
        "identity over 20 decades",
        lambda x: x.clone(),
        _ELEMENT,
        x=spread(1e-10, 1e10, 11),
        exact=diagonal(torch.ones_like),
    ),
    specimen(
        "square over 20 decades", torch.square, _ELEMENT, x=spread(1e-10, 1e10, 11), exact=diagonal(lambda x: 2 * x)
    ),
    specimen("tanh of tanh of tanh", lambda x: x.tanh().tanh().tanh(), _ELEMENT, x=normal(5)),
    specimen(
        "fast and slow",
        lambda x: x + 1e-3 * (300 * x).sin(),
        _ELEMENT,
        x=normal(5),
        exact=diagonal(lambda x: 1 + 0.3 * (300 * x).cos()),
    ),
)
