"""A gradient by a matrix that is right as long as the matrix moves symmetrically."""

from __future__ import annotations

import torch

from gradverify.core.function.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.naming.wording import part

SYMMETRISED = "symmetrised"


def symmetrised(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """What is claimed of an entry and of its mirror image adds up to what it should, and only that."""
    shape = evidence.wrt.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
        return None
    mirror = torch.arange(total(shape)).view(shape).mT.reshape(-1).to(seen.numeric.device)
    share = share_of(seen, seen.numeric + seen.numeric[:, mirror] - seen.claimed[:, mirror])
    if share is None:
        return None
    name = evidence.wrt.name
    below = torch.arange(total(shape), device=mirror.device) > mirror  # the diagonal
    read = [
        f": {evidence.of.name} is made of its {half} triangle alone"
        for half, other in (("lower", below[mirror]), ("upper", below))
        if bool(seen.zero[:, other].all())
    ]
    text = (
        f"an entry of {name} and its mirror image together get what they should, apart they do not{part(share)}"
        f"{''.join(read)}; where {name} moves symmetrically, `constraint: symmetric` says so"
    )
    return Diagnosis(cause=SYMMETRISED, explanation=text, share=share)
