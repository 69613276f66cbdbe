"""Missing conjugate: backward multiplies by a complex derivative instead of by its conjugate."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.seen import Seen, see, share_of
from gradverify.diagnosis.naming.tensors import places_of
from gradverify.diagnosis.naming.wording import part

MISSING_CONJUGATE = "missing-conjugate"


def missing_conjugate(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Detect the opposite sign in all entries between a real and an imaginary part, or by all imaginary parts."""
    del seen
    of, wrt, whole = evidence.of, evidence.wrt, evidence.whole
    if not is_complex(of) and not is_complex(wrt):
        return None
    place = (places_of(whole.outputs, of.tensor), places_of(whole.inputs, wrt.tensor))
    both = see(evidence.backward, whole.claimed[place], whole.numeric[place], whole.bar[place], whole.wrong[place])
    if both is None or not bool((~both.wrong & ~both.zero).any()):
        return None  # if no entry is right, a flipped sign explains the error as well
    rows, columns = both.numeric.shape
    left, right = signs(of, rows).to(evidence.device), signs(wrt, columns).to(evidence.device)
    share = share_of(both, left.unsqueeze(1) * both.numeric * right)
    if share is not None:
        return as_unconjugated(evidence, share)
    share = share_of(both, both.numeric * right)
    return None if share is None else as_conjugate(evidence, share)


def as_unconjugated(site: Site, share: float) -> Diagnosis:
    """Return the diagnosis of a derivative that is not conjugated."""
    text = f"{_explanation(site.of, site.wrt)}{part(share)}"
    return Diagnosis(cause=MISSING_CONJUGATE, explanation=text, share=share)


def as_conjugate(site: Site, share: float) -> Diagnosis:
    """Return the diagnosis of a gradient that is the conjugate of the right one."""
    text = f"the gradient by {_tensor_name(site.wrt)} is the conjugate of what it should be{part(share)}"
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


def signs(block: Block, count: int) -> Tensor:
    """Return -1 at the imaginary parts of the block's tensor and 1 elsewhere, (count,)."""
    found = torch.ones(count, dtype=torch.float64)
    if is_complex(block):
        found[1::2] = -1.0
    return found


def is_complex(block: Block) -> bool:
    """True if the block is the real or the imaginary part of a complex tensor."""
    return block.step == 2
