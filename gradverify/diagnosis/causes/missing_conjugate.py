"""Missing conjugate: backward multiplies by a complex derivative instead of by its conjugate."""

from __future__ import annotations

import torch

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import Pattern
from gradverify.diagnosis.naming.variables import whole_tensor
from gradverify.diagnosis.naming.wording import diagnosed, first
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis

MISSING_CONJUGATE = "missing-conjugate"


def missing_conjugate(compared: ComparedBlock) -> Diagnosis | None:
    """Detect the opposite sign in all entries between a real and an imaginary part, or by all imaginary parts."""
    block, of, wrt = compared.block, compared.block.of, compared.block.wrt
    from_complex, to_complex = (tensor.step == 2 for tensor in (wrt, of))  # a part of a complex tensor
    if not from_complex and not to_complex:
        return None
    both = compared.over(whole_tensor(block.outputs, of.tensor), whole_tensor(block.inputs, wrt.tensor))
    if both is None or both.agrees(Pattern(factor=-1.0)) is not None:
        return None  # one sign in all entries is simpler
    output, gradient = both.block.of.name, both.block.wrt.name
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64, device=block.device)  # of the two parts of a complex number
    by_row, by_column = signs.repeat(total(of.shape)), signs.repeat(total(wrt.shape))
    both_ways = f"the derivative of {output} by {gradient} is not conjugated: its imaginary part has the opposite sign"
    of_gradient = f"the gradient by {gradient} is the conjugate of what it should be"
    of_output = f"what comes back from the imaginary part of {output} has the opposite sign"
    of_output += ": a conj() is missing, or one too many" if from_complex else ": conj() is missing"
    patterns = (
        (from_complex and to_complex, Pattern(by_row=by_row, by_column=by_column), both_ways),
        (from_complex, Pattern(by_column=by_column), of_gradient),
        (to_complex, Pattern(by_row=by_row), of_output),
    )
    possible = ((pattern, text) for is_possible, pattern, text in patterns if is_possible)
    return first(diagnosed(MISSING_CONJUGATE, text, both.agrees(pattern)) for pattern, text in possible)
