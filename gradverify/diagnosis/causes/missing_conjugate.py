"""Missing conjugate: backward multiplies by a complex derivative instead of by its conjugate."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.entries import BlockEntries, block_entries, explained_share
from gradverify.diagnosis.naming.tensors import slice_of
from gradverify.diagnosis.naming.wording import share_text
from gradverify.evidence import Diagnosis, Evidence, WrongBlock

MISSING_CONJUGATE = "missing-conjugate"


def missing_conjugate(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect the opposite sign in all entries between a real and an imaginary part, or by all imaginary parts."""
    del seen
    of, wrt, whole = evidence.of, evidence.wrt, evidence.jacobians
    if not is_complex(of) and not is_complex(wrt):
        return None
    place = (slice_of(whole.outputs, of.tensor), slice_of(whole.inputs, wrt.tensor))
    both = block_entries(
        evidence.backward, whole.claimed[place], whole.numeric[place], whole.bar[place], whole.wrong[place]
    )
    if both is None or not bool((~both.wrong & ~both.zero).any()):
        return None  # if no entry is right, a flipped sign explains the error as well
    rows, columns = both.numeric.shape
    left, right = conjugation_signs(of, rows).to(evidence.device), conjugation_signs(wrt, columns).to(evidence.device)
    share = explained_share(both, left.unsqueeze(1) * both.numeric * right)
    if share is not None:
        return as_unconjugated(evidence, share)
    share = explained_share(both, both.numeric * right)
    return None if share is None else as_conjugate(evidence, share)


def as_unconjugated(site: WrongBlock, share: float) -> Diagnosis:
    """Return the diagnosis of a derivative that is not conjugated."""
    text = f"{_explanation(site.of, site.wrt)}{share_text(share)}"
    return Diagnosis(cause=MISSING_CONJUGATE, explanation=text, share=share)


def as_conjugate(site: WrongBlock, share: float) -> Diagnosis:
    """Return the diagnosis of a gradient that is the conjugate of the right one."""
    text = f"the gradient by {_tensor_name(site.wrt)} is the conjugate of what it should be{share_text(share)}"
    return Diagnosis(cause=MISSING_CONJUGATE, explanation=text, share=share)


def _tensor_name(block: Block) -> str:
    return block.name.rpartition(".")[0] or block.name


def _explanation(of: Block, wrt: Block) -> str:
    gradient, output = _tensor_name(wrt), _tensor_name(of)
    if not is_complex(of):
        return f"the gradient by {gradient} is the conjugate of what it should be"
    if not is_complex(wrt):
        return f"what comes back from the imaginary part of {output} has the opposite sign: conj() is missing"
    return f"the derivative of {output} by {gradient} is not conjugated: its imaginary part has the opposite sign"


def conjugation_signs(block: Block, count: int) -> Tensor:
    """Return -1 at the imaginary parts of the block's tensor and 1 elsewhere, (count,)."""
    found = torch.ones(count, dtype=torch.float64)
    if is_complex(block):
        found[1::2] = -1.0
    return found


def is_complex(block: Block) -> bool:
    """True if the block is the real or the imaginary part of a complex tensor."""
    return block.step == 2
