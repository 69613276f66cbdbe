"""Test whether wrong coordinates depend on the values of the input or on the position.

If a branch is wrong, the wrong entries follow the values; at an edge of a tensor, or at a step of a recurrence, they
stay at their positions. With few coordinates, both descriptions may fit by coincidence. So the entries of the input are
permuted, both Jacobians are computed again, and a region of values has to contain the wrong coordinates there too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradverify.core.decide.verdict import Code
from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.shifted_problem import evidence_at
from gradverify.diagnosis.naming.region import Region
from gradverify.diagnosis.naming.variables import Axis, input_and_output_values, variables
from gradverify.evidence import Evidence

_LARGEST = 64  # entries of the input and of the output: in larger tensors a coincidence is unlikely
_SCALE = 1.25  # factor on the input at which a derivative that depends on it is another one
_SAME = 1e-5  # relative difference of derivatives that count as equal
_ZERO = 1e-9  # of the largest entry: anything smaller is zero
_SEVERAL = 2  # coordinates that a decision needs
_EXCEPTIONS = 10  # one in so many coordinates may contradict

# (claimed, numeric), each (m, n), to the mask (m, n) of the entries whose coordinates a region should contain
MarkEntries = Callable[[Tensor, Tensor], Tensor]


def follows_values(
    permuted: Callable[[], Evidence | None],
    axis: Axis,
    wrong: Tensor,
    region: Region,
    marks: MarkEntries | None = None,
) -> bool | None:
    """Return True if a region contains the coordinates with wrong entries after the values of the input changed places.

    With `marks`, it has to contain those with marked entries instead. Returns False if these are the same coordinates
    `wrong` (k,) as before, None if neither is clear. `permuted` returns the block at the permuted input.
    """
    there = permuted() if region.membership is not None else None
    if there is None or region.membership is None:
        return None
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
    return False if _agree(wrong, wrong_there, usable) else None


def _agree(expected: Tensor, found: Tensor, usable: Tensor) -> bool:
    """True if two masks (k,) agree at the usable coordinates, up to one exception in ten, and there are enough."""
    return int(usable.sum()) >= _SEVERAL and _EXCEPTIONS * int(((expected != found) & usable).sum()) <= int(
        usable.sum()
    )


def permuted_block(evidence: Evidence) -> Evidence | None:
    """Return both Jacobians at the permuted input; None if they cannot be computed, or backward ignores the point."""
    problem = evidence.backward.problem
    if max(total(evidence.of.shape), total(evidence.wrt.shape)) > _LARGEST or problem.order > 1:
        return None
    values = input_and_output_values(evidence)[0][evidence.wrt.coordinates]
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0)).to(values.device)
    point = values.clone()
    point[order] = values[order.roll(1)]  # a cyclic permutation, so that every entry changes its position
    there = evidence_at(evidence, point)
    if there is None or (torch.equal(there.claimed, evidence.claimed) and _is_constant(evidence, values)):
        return None
    return there


def _is_constant(evidence: Evidence, values: Tensor) -> bool:
    """True if backward ignores the point: scaling the input changes the derivative, but not the claims.

    Then the wrong entries at the permuted input are no evidence.
    """
    scaled = evidence_at(evidence, _SCALE * values)
    if scaled is None or not torch.equal(scaled.claimed, evidence.claimed):
        return False
    change = (scaled.numeric - evidence.numeric).abs()
    return bool((change > _SAME * evidence.numeric.abs().max() + scaled.bar + evidence.bar).any())
