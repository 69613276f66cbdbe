"""Sums, products, moments and cumulative forms."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.zoo.specimen import Specimen, at, normal, specimen, uniform

_R = "reduction"


def _variance_slope(x: Tensor) -> Tensor:
    """Return the Jacobian of the variance, computed from exact differences, for values far from zero."""
    differences = x.detach() - x.detach()[0]
    return 2 * (differences - differences.mean()).unsqueeze(0) / (len(x) - 1)


REDUCTIONS: tuple[Specimen, ...] = (
    specimen("sum", torch.sum, _R, x=normal(4, 3)),
    specimen("mean over rows", lambda x: x.mean(0), _R, x=normal(4, 3)),
    specimen("prod", torch.prod, _R, x=normal(6)),
    specimen("prod with one zero", torch.prod, _R, x=at(1.0, 0.0, 3.0, -2.0)),
    specimen("prod with two zeros", torch.prod, _R, x=at(1.0, 0.0, 0.0, -2.0)),
    specimen("prod over a dimension", lambda x: x.prod(1), _R, x=normal(3, 4)),
    specimen("cumsum", lambda x: x.cumsum(0), _R, x=normal(7)),
    specimen("cumprod", lambda x: x.cumprod(0), _R, x=normal(5)),
    specimen("cumprod with zeros", lambda x: x.cumprod(0), _R, x=at(2.0, 0.0, 3.0, 0.0, 1.0)),
    specimen("logcumsumexp", lambda x: x.logcumsumexp(0), _R, x=normal(5, scale=3)),
    specimen("variance", torch.var, _R, x=normal(8)),
    specimen("variance around 1e6", torch.var, _R, x=normal(8, shift=1e6), exact=_variance_slope),
    specimen("standard deviation", lambda x: x.std(1), _R, x=normal(3, 5)),
    specimen("logsumexp", lambda x: x.logsumexp(-1), _R, x=normal(3, 5)),
    specimen("logsumexp with a spread of 700", lambda x: x.logsumexp(0), _R, x=at(-350.0, 0.0, 350.0)),
    specimen("logsumexp around 1000", lambda x: x.logsumexp(0), _R, x=at(1000.0, 1001.0, 999.5)),
    specimen("norm", torch.linalg.vector_norm, _R, x=normal(6)),
    specimen("3-norm", lambda x: torch.linalg.vector_norm(x, 3), _R, x=normal(6)),
    specimen("half-norm", lambda x: torch.linalg.vector_norm(x, 0.5), _R, x=uniform(0.2, 2, 4)),
    specimen("norms of rows", lambda x: x.norm(dim=1), _R, x=normal(4, 3)),
    specimen("amax with a clear winner", lambda x: x.amax(1), _R, x=normal(4, 5)),
    specimen("aminmax", lambda x: torch.aminmax(x), _R, x=normal(6)),
    specimen("median with a clear middle", torch.median, _R, x=normal(7)),
    specimen("quantile", lambda x: x.quantile(0.3), _R, x=normal(7)),
    specimen("sort", lambda x: x.sort().values, _R, x=normal(7)),
    specimen("topk", lambda x: x.topk(3).values, _R, x=normal(7)),
    specimen("trace of a power", lambda x: (x @ x @ x).trace(), _R, x=normal(3, 3)),
    specimen("harmonic mean", lambda x: x.numel() / (1 / x).sum(), _R, x=uniform(0.2, 4, 5)),
    specimen("geometric mean", lambda x: x.log().mean().exp(), _R, x=uniform(0.2, 4, 5)),
    specimen("entropy", lambda p: -(p * p.log()).sum(), _R, p=uniform(0.01, 1, 6)),
    specimen("smooth maximum", lambda x: (50 * x).logsumexp(0) / 50, _R, x=normal(6)),
    specimen("diff", lambda x: x.diff(), _R, x=normal(6)),
    specimen("trapezoid", torch.trapezoid, _R, y=normal(5), x=uniform(0, 1, 5)),
    specimen("renormalised", lambda x: x / x.norm(dim=1, keepdim=True), _R, x=normal(3, 4)),
    specimen("covariance", torch.cov, _R, x=normal(3, 6)),
    specimen("correlation", torch.corrcoef, _R, x=normal(3, 6)),
)
