"""Backward computes in a lower precision: every number that it returns is exactly one of a narrower dtype."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, row
from gradverify.core.model.generators import scattered
from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.naming.wording import rounded_up
from gradverify.errors import EvaluationError

LOW_PRECISION = "low-precision-backward"
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)  # coarsest first
_COTANGENTS = 4  # random, of 32 bits each, so that even a Jacobian of zeros and ones gives no simple numbers
_NUMBERS = 6  # different ones that have to be exact: a float16 number is a bfloat16 number one time in eight
_ROUNDINGS = 256  # of the narrower dtype: more is an error of another kind
_MOST = 0.1  # of the derivative: whatever the dtype, more is another error


def low_precision_backward(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """All answers to random cotangents are exact in a narrower dtype, and the error is of the size of its rounding."""
    generator = torch.Generator().manual_seed(0)
    judged = torch.zeros(max(block.stop for block in evidence.outputs), dtype=torch.float64)
    judged[evidence.of.coordinates] = 1.0
    try:
        answers = [row(evidence.backward, scattered(judged, generator)) for _ in range(_COTANGENTS)]
    except EvaluationError:
        return None
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    size = torch.linalg.vector_norm(seen.numeric)
    return in_lower_precision(evidence, torch.stack(answers), float(torch.linalg.vector_norm(error) / size))


def in_lower_precision(site: Site, answers: Tensor, error: float) -> Diagnosis | None:
    """Return the diagnosis of answers (K, n) that a narrower dtype holds exactly; `error` is relative to the block."""
    numbers = torch.unique(answers[:, site.wrt.coordinates].abs())
    numbers = numbers[numbers > 0]
    for dtype in _narrower(site.backward):
        name, eps = str(dtype).removeprefix("torch."), torch.finfo(dtype).eps
        exact = len(numbers) >= _NUMBERS and torch.equal(numbers.to(dtype).to(numbers.dtype), numbers)
        if exact and error <= min(_MOST, _ROUNDINGS * eps):
            text = f"all {len(numbers)} different numbers that backward returned to random cotangents are exactly"
            text += f" {name} numbers, and the error is {rounded_up(error)} of the derivative: backward computes in"
            return Diagnosis(cause=LOW_PRECISION, explanation=f"{text} {name}, or rounds to it", share=1.0)
    return None


def _narrower(backward: Backward) -> Iterable[torch.dtype]:
    """Yield the dtypes that hold less than those of all inputs and outputs."""
    tensors = [primal.tensor for primal in backward.problem.primals] + [each.tensor for each in backward.tape.outputs]
    eps = max(torch.finfo(tensor.dtype).eps for tensor in tensors if tensor.is_floating_point() or tensor.is_complex())
    return (dtype for dtype in _DTYPES if torch.finfo(dtype).eps > eps)
