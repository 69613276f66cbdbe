"""Test whether wrong coordinates depend on the values of the input or on the position.

If a branch is wrong, the wrong entries follow the values; at an edge of a tensor, or at a step of a recurrence, they
stay at their positions. With few coordinates, both descriptions may fit by coincidence. So the entries of the input are
permuted, both Jacobians are computed again, and a region of values has to contain the wrong coordinates there too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.verdict import Code
from gradverify.core.model.coordinates import total
from gradverify.core.model.magnitudes import all_set
from gradverify.diagnosis.block.shifted_problem import clear_errors, evidence_at, evidence_scaled
from gradverify.diagnosis.naming.region import Region
from gradverify.diagnosis.naming.variables import Axis, input_and_output_values, variables
from gradverify.evidence import Evidence

_LARGEST = 64  # entries of the input and of the output: in larger tensors a coincidence is unlikely
_SCALE = 1.25  # factor on all inputs at which a derivative that depends on them is another one
_SAME = 1e-5  # relative difference of derivatives that count as equal
_ZERO = 1e-9  # of the largest entry: anything smaller is zero
_SEVERAL = 2  # coordinates that a decision needs
_EXCEPTIONS = 10  # one in so many coordinates may contradict

# (claimed, numeric), each (m, n), to the mask (m, n) of the entries whose coordinates a region should contain
MarkEntries = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permuted:
    """A block after the entries of its input changed places."""

    evidence: Evidence
    ignored: bool  # the derivative changed but the claims did not, so wrong entries cannot move with the values


def follows_values(
    permuted: Callable[[], Permuted | None],
    axis: Axis,
    wrong: Tensor,
    region: Region,
    marks: MarkEntries | None = None,
) -> bool | None:
    """Return True if a region contains the coordinates with wrong entries after the values of the input changed places.

    With `marks`, it has to contain those with marked entries instead. Returns False if these are the same coordinates
    `wrong` (k,) as before, unless backward ignores the values; None if neither is clear.
    """
    if region.membership is None or (found := permuted()) is None:
        return None
    there = found.evidence
    marked = there.wrong if marks is None else marks(there.claimed, there.numeric)
    predicted = region.membership({variable.name: variable.values for variable in variables(there, axis)})
    if predicted is None:
        return None
    (inside, sure), across = predicted, 1 - axis.value
    size = torch.maximum(there.claimed.abs(), there.numeric.abs()).nan_to_num(0.0, 0.0, 0.0)
    nonzero = size > _ZERO * size.max()
    code = there.jacobians.code[there.of.coordinates, there.wrt.coordinates]
    known = (code == Code.MATCH) | (code == Code.MISMATCH)
    usable = nonzero.any(across) & known.all(across)
    wrong_there = (marked & nonzero & known).any(across)
    if _agree(inside, wrong_there, usable & sure):
        return True
    return False if not found.ignored and _agree(wrong, wrong_there, usable) else None


def _agree(expected: Tensor, found: Tensor, usable: Tensor) -> bool:
    """True if two masks (k,) agree at the usable coordinates, up to one exception in ten, and there are enough."""
    return int(usable.sum()) >= _SEVERAL and _EXCEPTIONS * int(((expected != found) & usable).sum()) <= int(
        usable.sum()
    )


def permuted_block(evidence: Evidence) -> Permuted | None:
    """Return the block at the permuted input; None if large, unknown there, or if backward ignores all inputs."""
    if max(total(evidence.of.shape), total(evidence.wrt.shape)) > _LARGEST or evidence.backward.problem.order > 1:
        return None
    if not all_set(clear_errors(evidence)):
        return None
    values = input_and_output_values(evidence)[0][evidence.wrt.coordinates]
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0)).to(values.device)
    point = values.clone()
    point[order] = values[order.roll(1)]  # a cyclic permutation, so that every entry changes its position
    there = evidence_at(evidence, point)
    if there is None:
        return None
    if torch.equal(there.claimed, evidence.claimed) and _ignores(evidence, evidence_scaled(evidence, _SCALE)):
        return None
    return Permuted(evidence=there, ignored=_ignores(evidence, there))


def _ignores(evidence: Evidence, there: Evidence | None) -> bool:
    """True if the derivative changes from one point to another but the claims do not."""
    if there is None or not torch.equal(there.claimed, evidence.claimed):
        return False
    change = (there.numeric - evidence.numeric).abs()
    return bool((change > _SAME * evidence.numeric.abs().max() + there.bar + evidence.bar).any())
