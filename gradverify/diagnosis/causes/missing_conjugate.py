"""Missing conjugate: backward multiplies by a complex derivative instead of by its conjugate."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.entries import Pattern
from gradverify.diagnosis.naming.variables import whole_tensor
from gradverify.diagnosis.naming.wording import diagnosed, first
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis

MISSING_CONJUGATE = "missing-conjugate"


def missing_conjugate(compared: ComparedBlock) -> Diagnosis | None:
    """Detect the opposite sign in all entries between a real and an imaginary part, or by all imaginary parts."""
    site, of, wrt = compared.block, compared.block.of, compared.block.wrt
    from_complex, to_complex = _is_complex(wrt), _is_complex(of)
    if not from_complex and not to_complex:
        return None
    both = compared.over(whole_tensor(site.outputs, of.tensor), whole_tensor(site.inputs, wrt.tensor))
    if both is None or both.agrees(Pattern(factor=-1.0)) is not None:
        return None  # one sign in all entries is simpler
    output, gradient = both.block.of.name, both.block.wrt.name
    by_row, by_column = (
        _conjugation_signs(part, whole).to(site.device) for part, whole in ((of, both.block.of), (wrt, both.block.wrt))
    )
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


def _conjugation_signs(part: Block, whole: Block) -> Tensor:
    """Return -1 at the imaginary parts of a tensor and 1 elsewhere, (entries,); `part` is one of its parts."""
    found = torch.ones(whole.stop - whole.start, dtype=torch.float64)
    if _is_complex(part):
        found[1::2] = -1.0
    return found


def _is_complex(block: Block) -> bool:
    """True if the block is the real or the imaginary part of a complex tensor."""
    return block.step == 2
