"""Gradients by a square matrix whose mirrored entries have the right sum: symmetrised, or with a transposed term."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.causes.permuted import TRANSPOSED
from gradverify.diagnosis.naming.variables import input_and_output_values
from gradverify.diagnosis.naming.wording import share_text
from gradverify.diagnosis.tuning import EQUAL_ENTRIES
from gradverify.evidence import Diagnosis

SYMMETRISED = "symmetrised"


def symmetrised(seen: BlockEntries) -> Diagnosis | None:
    """Detect gradients of which only the sum of each entry and its mirror image is right."""
    shape = seen.block.wrt.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
        return None
    name, mirror = seen.block.wrt.name, torch.arange(total(shape)).view(shape).mT.reshape(-1).to(seen.numeric.device)
    claimed, numeric, pair_slack = (both + both[:, mirror] for both in (seen.claimed, seen.numeric, seen.slack))
    share = seen.explained_share(numeric - seen.claimed[:, mirror])
    if share is None or not _are_same(claimed, numeric, pair_slack):
        return None  # other errors remain, and a symmetry constraint would not make the gradient right
    pair_text = f"an entry of {name} and its mirror image together get what they should,"
    pair_text += f" apart they do not{share_text(share)}"
    lower = torch.arange(total(shape), device=mirror.device) > mirror  # strictly below the diagonal
    triangle = [
        f": {seen.block.of.name} is made of its {half} triangle alone"
        for half, other in (("lower", lower[mirror]), ("upper", lower))
        if bool(seen.zero[:, other].all())
    ]
    if triangle or _may_be_symmetric(seen, mirror, pair_slack):
        text = f"{pair_text}{''.join(triangle)}; where {name} moves symmetrically, `constraint: symmetric` says so"
        return Diagnosis(cause=SYMMETRISED, explanation=text, share=share)
    if _are_same(seen.numeric, -seen.numeric[:, mirror], pair_slack):
        return None  # every antisymmetric claim has the right sum, zero
    text = f"{pair_text}, as where a term of the gradient by {name} is transposed"
    return Diagnosis(cause=TRANSPOSED, explanation=text, share=share)


def _may_be_symmetric(seen: BlockEntries, mirror: Tensor, pair_slack: Tensor) -> bool:
    """True if the matrix itself, the numeric Jacobian or the claimed one is symmetric."""
    point = input_and_output_values(seen.block)[0][seen.block.wrt.coordinates]
    jacobians = (seen.claimed, seen.numeric)
    is_jacobian_symmetric = any(_are_same(entries, entries[:, mirror], pair_slack) for entries in jacobians)
    return is_jacobian_symmetric or _are_same(point, point[mirror], torch.zeros_like(point))


def _are_same(entries: Tensor, others: Tensor, slack: Tensor) -> bool:
    return bool(((entries - others).abs() <= slack + EQUAL_ENTRIES * entries.abs().max()).all())
