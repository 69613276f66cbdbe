"""A gradient by a matrix whose mirrored entries add up to what they should: symmetric, or with a term transposed."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.causes.arranged import TRANSPOSED
from gradverify.diagnosis.naming.variables import coordinates
from gradverify.diagnosis.naming.wording import part

SYMMETRISED = "symmetrised"
_SAME = 1e-6  # relative to the largest


def symmetrised(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """What is claimed of an entry and of its mirror image adds up to what it should, and only that."""
    shape = evidence.wrt.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
        return None
    mirror = torch.arange(total(shape)).view(shape).mT.reshape(-1).to(seen.numeric.device)
    share = share_of(seen, seen.numeric + seen.numeric[:, mirror] - seen.claimed[:, mirror])
    both = seen.slack + seen.slack[:, mirror]
    if share is None or not _are_same(
        seen.claimed + seen.claimed[:, mirror], seen.numeric + seen.numeric[:, mirror], both
    ):
        return None  # of what is wrong besides, nothing must be said to be made right by a constraint
    name = evidence.wrt.name
    together = f"an entry of {name} and its mirror image together get what they should, apart they do not{part(share)}"
    below = torch.arange(total(shape), device=mirror.device) > mirror  # the diagonal
    read = [
        f": {evidence.of.name} is made of its {half} triangle alone"
        for half, other in (("lower", below[mirror]), ("upper", below))
        if bool(seen.zero[:, other].all())
    ]
    if read or _may_be_symmetric(evidence, seen, mirror, both):
        text = f"{together}{''.join(read)}; where {name} moves symmetrically, `constraint: symmetric` says so"
        return Diagnosis(cause=SYMMETRISED, explanation=text, share=share)
    if _are_same(seen.numeric, -seen.numeric[:, mirror], both):
        return None  # whatever is claimed antisymmetrically adds up to nothing
    text = f"{together}, as where a term of the gradient by {name} is transposed"
    return Diagnosis(cause=TRANSPOSED, explanation=text, share=share)


def _may_be_symmetric(evidence: Evidence, seen: Seen, mirror: Tensor, both: Tensor) -> bool:
    """Tell whether the matrix is symmetric, or whether forward or backward treats it as if it were."""
    point = coordinates(evidence)[0][evidence.wrt.coordinates]
    sides = (seen.claimed, seen.numeric)
    of_sides = any(_are_same(entries, entries[:, mirror], both) for entries in sides)
    return of_sides or _are_same(point, point[mirror], torch.zeros_like(point))


def _are_same(entries: Tensor, others: Tensor, slack: Tensor) -> bool:
    return bool(((entries - others).abs() <= slack + _SAME * entries.abs().max()).all())
