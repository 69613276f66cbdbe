"""A function in low precision: its backward as it is, and its forward sampled in double precision at the same numbers.

Differences of a forward that rounds to eight or eleven bits resolve next to nothing. Where the same code takes float64
and gives what it gives in low precision, up to rounding, it is the function that backward is to be the derivative of.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered
from gradverify.core.function.flags import all_set
from gradverify.core.function.problem import Problem
from gradverify.core.function.sampler import Sampler, along, sampler
from gradverify.core.function.scale import own_or_shared, scales
from gradverify.core.function.steady import Steady
from gradverify.core.function.tape import record
from gradverify.errors import EvaluationError

_NARROW = {torch.float16, torch.bfloat16, torch.float32}
_UNITS, _TRIALS = 2.0, 8  # of rounding, by which all inputs are moved, and how often
_FEW = 32.0  # units of rounding of the largest output, by which the two forwards may be apart


def in_double(steady: Steady) -> Steady:
    """Return the problem with its forward sampled in float64, or as it is where that is not possible."""
    dtypes = frozenset(primal.tensor.dtype for primal in steady.problem.primals)
    if not dtypes or not dtypes <= _NARROW:
        return steady
    eps = max(torch.finfo(dtype).eps for dtype in dtypes)
    least = max(torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps for dtype in dtypes)
    for function in (steady.problem.function, steady.problem.finer):
        wide = None if function is None else _sampled(replace(steady.problem, function=function))
        if wide is not None and _alike(wide, steady.sampled, eps):
            return replace(steady, sampled=replace(wide, dtypes=dtypes, coarse=eps, least=least))
    return steady


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
    """Tell whether two forwards give the same outputs but for rounding, inside or as if of the inputs."""
    if (wide.names, wide.shapes) != (narrow.names, narrow.shapes):
        return False
    apart = (wide.value - narrow.value).abs()
    near = (apart <= _FEW * eps * wide.size) | (wide.value == narrow.value)
    near |= wide.value.isnan() & narrow.value.isnan()
    return all_set(near) or all_set(near | (apart <= _moved(wide, eps)))


def _moved(wide: Sampler, eps: float) -> Tensor:
    """Return how far the outputs move where all inputs are off by about as much as rounding, (m,)."""
    generator, length = torch.Generator().manual_seed(0), own_or_shared(scales(wide))
    moved = [(along(wide, scattered(_UNITS * eps * length, generator)) - wide.value).abs() for _ in range(_TRIALS)]
    return torch.stack(moved).nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
