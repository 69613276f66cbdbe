"""A function in low precision: its backward as it is, and its forward sampled in double precision at the same numbers.

Differences of a forward that rounds to eight or eleven bits resolve next to nothing. Where the same code takes float64
and gives what it gives in low precision, up to rounding, it is the function that backward is to be the derivative of.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from gradverify.core.function.problem import Problem
from gradverify.core.function.sampler import Sampler, sampler
from gradverify.core.function.steady import Steady
from gradverify.core.function.tape import record
from gradverify.errors import EvaluationError

_NARROW = {torch.float16, torch.bfloat16, torch.float32}
_FEW = 32.0  # units of rounding of the largest output, by which the two forwards may be apart


def in_double(steady: Steady) -> Steady:
    """Return the problem with its forward sampled in float64, or as it is where that is not possible."""
    dtypes = frozenset(primal.tensor.dtype for primal in steady.problem.primals)
    if not dtypes or not dtypes <= _NARROW:
        return steady
    eps = max(torch.finfo(dtype).eps for dtype in dtypes)
    least = max(torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps for dtype in dtypes)
    wide = _sampled(steady.problem)
    if wide is None or not _alike(wide, steady.sampled, eps):
        return steady
    return replace(steady, sampled=replace(wide, dtypes=dtypes, coarse=eps, least=least))


def _sampled(problem: Problem) -> Sampler | None:
    primals = tuple(replace(primal, tensor=primal.tensor.double()) for primal in problem.primals)
    wide = replace(problem, primals=primals)
    try:
        tape = record(wide)
        if any(output.tensor.dtype is not torch.float64 for output in tape.outputs):
            return None  # it computes in low precision whatever it gets
        return sampler(wide, tape)
    except EvaluationError:
        return None


def _alike(wide: Sampler, narrow: Sampler, eps: float) -> bool:
    """Tell whether two forwards give the same outputs but for rounding."""
    if (wide.names, wide.shapes) != (narrow.names, narrow.shapes):
        return False
    apart = (wide.value - narrow.value).abs()
    near = (apart <= _FEW * eps * wide.size) | (wide.value == narrow.value)
    return bool((near | (wide.value.isnan() & narrow.value.isnan())).all())
