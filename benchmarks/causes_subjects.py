"""Functions to plant faults of every kind in, large enough for the faults to show a pattern."""

from __future__ import annotations

import torch
import torch.nn.functional as nn

from tests.zoo.specimen import Specimen, at, complex_normal, normal, specimen, uniform

_E, _R, _M, _T, _C = "elementwise", "reduction", "matrix", "two inputs", "complex"
_ZEROS = (0.0, 1.3, 0.4, 0.7, 1.2, 0.0, 0.3, 0.9, 2.1, 1.7, 0.0, 0.6, 1.9, 0.8, -0.5, -1.1, -0.2)

SUBJECTS: tuple[Specimen, ...] = (
    specimen("exp", torch.exp, _E, x=normal(16)),
    specimen("sine of a matrix", torch.sin, _E, x=normal(8, 4)),
    specimen("tanh of an image", torch.tanh, _E, x=normal(2, 8, 3)),
    specimen("sigmoid", torch.sigmoid, _E, x=normal(12, scale=2)),
    specimen("cube", lambda x: x**3, _E, x=normal(5, 4)),
    specimen("relu", torch.relu, _E, x=normal(12)),
    specimen("relu at zeros", lambda x: 2 * x.relu(), _E, x=at(*_ZEROS)),
    specimen("clamp", lambda x, low, high: x.clamp(low, high), _E, x=normal(4, 5, scale=2), low=-0.5, high=1.5),
    specimen("softplus", nn.softplus, _E, x=normal(10)),
    specimen("soft threshold", lambda x, width: nn.softshrink(x, width), _E, x=normal(16), width=0.5),
    specimen("clipped square of relu", lambda x: x.relu().square().clamp(max=2), _E, x=normal(6, 4)),
    specimen("round", torch.round, _E, x=normal(14, scale=3)),
    specimen("binarised", lambda x, level: (x > level).to(x.dtype), _E, x=normal(4, 5), level=0.25),
    specimen("layer after relu", lambda x, w: w @ x.relu(), _M, x=normal(10), w=normal(6, 10)),
    specimen("sum of squares", lambda x: x.square().sum(), _R, x=normal(9)),
    specimen("mean over rows", lambda x: x.exp().mean(0), _R, x=normal(5, 4)),
    specimen("sum over columns", lambda x: x.sin().sum(1), _R, x=normal(6, 7)),
    specimen("logsumexp", lambda x: x.logsumexp(-1), _R, x=normal(4, 6)),
    specimen("norm", lambda x: x.norm(dim=1), _R, x=normal(5, 6)),
    specimen("softmax", lambda x: x.softmax(-1), _M, x=normal(8)),
    specimen("log-softmax of rows", lambda x: x.log_softmax(-1), _M, x=normal(3, 6)),
    specimen("layer norm", lambda x: nn.layer_norm(x, (8,)), _M, x=normal(2, 8)),
    specimen("cumsum of squares", lambda x: x.square().cumsum(0), _M, x=normal(9)),
    specimen("band of a matrix", lambda x: x.triu(-2).tril(3), _M, x=normal(6, 7)),
    specimen("matmul", torch.matmul, _M, _T, a=normal(4, 4), b=normal(4, 4)),
    specimen("linear", nn.linear, _M, _T, x=normal(5, 3), w=normal(4, 3), b=normal(4)),
    specimen("convolution", lambda x, w: nn.conv1d(x, w), _M, _T, x=normal(1, 2, 9), w=normal(3, 2, 3)),
    specimen("square of a matrix", lambda a: a @ a, _M, a=normal(4, 4)),
    specimen("product", torch.mul, _E, _T, x=normal(8), y=normal(8)),
    specimen("quotient", torch.div, _E, _T, x=normal(3, 4), y=uniform(1, 2, 3, 4)),
    specimen("angle", torch.atan2, _E, _T, y=normal(10), x=normal(10)),
    specimen("squared loss", lambda p, t: (p - t).square(), _E, _T, p=normal(10), t=normal(10)),
    specimen("bias", lambda x, b: (x + b).tanh(), _T, x=normal(6, 4), b=normal(4)),
    specimen("polar", lambda r, t: (r * t.cos(), r * t.sin()), _T, r=uniform(1, 2, 7), t=normal(7)),
    specimen("sum and product", lambda x, y: (x**2 + y**2, x * y), _T, x=normal(6), y=normal(6)),
    specimen("bilinear form", lambda x, a, y: x @ a @ y, _T, x=normal(5), a=normal(5, 5), y=normal(5)),
    specimen("complex square", lambda z: z * z, _C, z=complex_normal(6)),
    specimen("complex exponential", lambda z: z.exp(), _C, z=complex_normal(2, 4)),
    specimen("squared modulus", lambda z: z.abs().square(), _C, z=complex_normal(8)),
    specimen("complex product", lambda z, w: z * w, _C, _T, z=complex_normal(5), w=complex_normal(5)),
)
