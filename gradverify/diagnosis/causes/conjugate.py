"""A complex derivative that is not conjugated on its way back."""

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
    """Entries between a real and an imaginary part have the opposite sign, the others are right."""
    del seen
    of, wrt, whole = evidence.of, evidence.wrt, evidence.whole
    if not is_complex(of) and not is_complex(wrt):
        return None
    pair = (places_of(whole.outputs, of.tensor), places_of(whole.inputs, wrt.tensor))
    both = see(evidence.backward, whole.claimed[pair], whole.numeric[pair], whole.bar[pair], whole.wrong[pair])
    if both is None or not bool((~both.wrong & ~both.zero).any()):
        return None  # where nothing is right, a flipped sign says as much
    rows, columns = both.numeric.shape
    left, right = signs(of, rows).to(evidence.device), signs(wrt, columns).to(evidence.device)
    share = share_of(both, left.unsqueeze(1) * both.numeric * right)
    if share is not None:
        return as_unconjugated(evidence, share)
    share = share_of(both, both.numeric * right)
    return None if share is None else as_conjugate(evidence, share)


def as_unconjugated(site: Site, share: float) -> Diagnosis:
    """Return the diagnosis of a derivative without its conj()."""
    text = f"{_reading(site.of, site.wrt)}{part(share)}"
    return Diagnosis(cause=MISSING_CONJUGATE, explanation=text, share=share)


def as_conjugate(site: Site, share: float) -> Diagnosis:
    """Return the diagnosis of a gradient that is conjugated as a whole, its cotangent included."""
    text = f"the gradient by {_whole(site.wrt)} is the conjugate of what it should be{part(share)}"
    return Diagnosis(cause=MISSING_CONJUGATE, explanation=text, share=share)


def _whole(block: Block) -> str:
    return block.name.rpartition(".")[0] or block.name


def _reading(of: Block, wrt: Block) -> str:
    gradient, output = _whole(wrt), _whole(of)
    if not is_complex(of):
        return f"the gradient by {gradient} is the conjugate of what it should be"
    if not is_complex(wrt):
        return f"what comes back from the imaginary part of {output} has the opposite sign: conj() is missing"
    return f"the derivative of {output} by {gradient} is not conjugated: its imaginary part has the opposite sign"


def signs(block: Block, count: int) -> Tensor:
    """Return -1 for the imaginary parts of the block's tensor, which has so many coordinates, and 1 for the rest."""
    found = torch.ones(count, dtype=torch.float64)
    if is_complex(block):
        found[1::2] = -1.0
    return found


def is_complex(block: Block) -> bool:
    """Tell whether the block is one half of a complex tensor."""
    return block.step == 2
