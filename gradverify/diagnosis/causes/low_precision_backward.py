"""Low precision in backward: all returned numbers are exactly representable in a narrower dtype."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, flat_vjp, row_cotangent
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.problem import NARROW
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.naming.wording import rounded_up
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnosis, WrongBlock

LOW_PRECISION = "low-precision-backward"
_COTANGENTS = 4  # random, of 32 bits each: even a Jacobian of zeros and ones returns numbers that narrow dtypes round
_MIN_NUMBERS = 6  # distinct numbers required: one float16 number in eight is a bfloat16 number by chance
_MAX_ROUNDINGS = 256  # times eps of the narrower dtype: a larger error has another cause
_MAX_ERROR = 0.1  # relative error: a larger one has another cause, whatever the dtype


def low_precision_backward(compared: ComparedBlock) -> Diagnosis | None:
    """Detect vjps that are exact in a narrower dtype, with an error of the size of its rounding."""
    block, vjps, generator = compared.block, [], torch.Generator().manual_seed(0)
    if isinstance(compared, BlockEntries):
        returned = compared.claimed * row_cotangent(block.backward)  # rows, before they were divided by their cotangent
        if not _exact_dtypes(block.backward, returned):
            return None
    ones = zero_outside(torch.ones_like(block.backward.known_vjp[0]), block.of.coordinates)
    try:
        for _ in range(_COTANGENTS):
            vjps.append(flat_vjp(block.backward, random_magnitudes(ones, generator)))
            if not _exact_dtypes(block.backward, _numbers(block, vjps[-1])):
                return None
    except EvaluationError:
        return None
    numbers, error = _numbers(block, torch.stack(vjps)), _relative_error(compared)
    for dtype in _exact_dtypes(block.backward, numbers) if len(numbers) >= _MIN_NUMBERS else ():
        name, eps = str(dtype).removeprefix("torch."), torch.finfo(dtype).eps
        if error <= min(_MAX_ERROR, _MAX_ROUNDINGS * eps):
            text = f"all {len(numbers)} different numbers that backward returned to random cotangents are exactly"
            text += f" {name} numbers, and the error is {rounded_up(error)} of the derivative: backward computes in"
            return Diagnosis(cause=LOW_PRECISION, explanation=f"{text} {name}, or rounds to it", share=1.0)
    return None


def _relative_error(compared: ComparedBlock) -> float:
    """Return the norm of the errors, relative to that of the numeric entries or sums."""
    numeric = compared.numeric if isinstance(compared, BlockEntries) else compared.numeric.value
    return float(torch.linalg.vector_norm(compared.claimed - numeric) / torch.linalg.vector_norm(numeric))


def _numbers(block: WrongBlock, answers: Tensor) -> Tensor:
    """Return the magnitudes that occur in vjps (..., n) by the block's input, without zero; (k,)."""
    numbers: Tensor = torch.unique(answers[..., block.wrt.coordinates].abs())
    return numbers[numbers > 0]


def _exact_dtypes(backward: Backward, numbers: Tensor) -> list[torch.dtype]:
    """Return the dtypes with a larger eps than all inputs and outputs that hold all numbers exactly, coarsest first."""
    tensors = [primal.tensor for primal in backward.problem.primals] + [each.tensor for each in backward.tape.outputs]
    eps = max(torch.finfo(tensor.dtype).eps for tensor in tensors if tensor.is_floating_point() or tensor.is_complex())
    narrower = (dtype for dtype in NARROW if torch.finfo(dtype).eps > eps)
    return [dtype for dtype in narrower if torch.equal(numbers.to(dtype).to(numbers.dtype), numbers)]
