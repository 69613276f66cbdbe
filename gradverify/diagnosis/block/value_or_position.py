"""Test whether wrong coordinates depend on the values of the input or on the position.

If a branch is wrong, the wrong entries follow the values; at an edge of a tensor, or at a step of a recurrence, they
stay at their positions. With few coordinates, both descriptions may fit by coincidence. So the entries of the input are
permuted, both Jacobians are computed again, and a region of values has to contain the wrong coordinates there too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import rows
from gradverify.core.backward.vjps import backward_of, row
from gradverify.core.model.coordinates import flatten, total
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.problem import call
from gradverify.core.model.tape import record
from gradverify.diagnosis.block.shifted_problem import outputs_at, problem_at
from gradverify.diagnosis.naming.region import Region
from gradverify.diagnosis.naming.variables import Axis, input_and_output_values, variables
from gradverify.errors import EvaluationError
from gradverify.evidence import Evidence

_LARGEST = 64  # entries of the input and of the output: in larger tensors a coincidence is unlikely
_STEP = 1e-3  # finite-difference step, relative to the size of the entry
_BESIDE = (1 + _STEP, 1 - _STEP)  # factors on all inputs, for a difference along the inputs themselves
_SAME = 1e-5  # relative error of a right entry
_BENT = 1e-3  # of a column's largest entry: differences of second and fourth order further apart straddle a kink
_CLEAR = 1e-3  # relative error that all wrong entries must exceed to be distinguishable from right ones
_ZERO = 1e-9  # of the largest entry: anything smaller is zero
_SEVERAL = 2  # coordinates that a decision needs
_SURE = 5e-3  # chance below which a region needs no test
_EXCEPTIONS = 10  # one in so many coordinates may contradict

# (claimed, numeric), each (m, n), to the mask (m, n) of the entries whose coordinates a region should contain
MarkEntries = Callable[[Tensor, Tensor], Tensor]


class RegionTest(Protocol):
    """Test of a region on an input whose entries are permuted.

    Returns True if the region contains the coordinates with wrong entries there (with `marks`: with marked entries),
    False if these are the same coordinates `wrong` (k,) as before the permutation, None if neither is clear.
    """

    def __call__(self, axis: Axis, wrong: Tensor, region: Region, marks: MarkEntries | None = None) -> bool | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Permuted:
    """Both Jacobians of a block after the entries of its input were permuted, each (m, n)."""

    evidence: Evidence
    claimed: Tensor
    numeric: Tensor
    wrong: Tensor  # bool, a subset of `known`
    known: Tensor  # bool: both entries are finite, and differences see no kink
    nonzero: Tensor  # bool: the claimed or the numeric entry is not zero


def region_test(evidence: Evidence) -> RegionTest:
    """Return the test of a block's regions; both Jacobians are computed again at its first call only."""
    permuted = cache(lambda: _permuted(evidence))

    def follows(axis: Axis, wrong: Tensor, region: Region, marks: MarkEntries | None = None) -> bool | None:
        jacobians = permuted() if region.membership is not None else None
        if jacobians is None:
            return None
        marked = jacobians.wrong if marks is None else marks(jacobians.claimed, jacobians.numeric)
        return _followed(jacobians, axis, region, wrong, marked)

    return follows


def accepted_region(regions: Iterable[Region], follows: Callable[[Region], bool | None]) -> Region | None:
    """Return the first region that passes the test `follows`, or else the best of those that are not ruled out.

    Two kinds of regions need no test: regions of positions, and a single region that is hardly a coincidence. A failed
    test rules a region out unless its chance is small. Of the remaining ones, the first with anchored thresholds is
    returned, or else the first; None if there is none.
    """
    candidates = list(regions)
    remaining: list[Region] = []
    for region in candidates:
        sure = region.membership is None or (region.chance <= _SURE and len(candidates) == 1)
        passes = True if sure else follows(region)
        if passes:
            return region
        if passes is None or region.chance <= _SURE:
            remaining.append(region)
    return next((region for region in remaining if region.anchored), remaining[0] if remaining else None)


def _followed(permuted: _Permuted, axis: Axis, region: Region, wrong: Tensor, marked: Tensor) -> bool | None:
    """Return the result of the test; see `RegionTest`."""
    others = {variable.name: variable.values for variable in variables(permuted.evidence, axis)}
    predicted = None if region.membership is None else region.membership(others)
    if predicted is None:
        return None
    (inside, sure), across = predicted, 1 - axis.value
    usable = permuted.nonzero.any(across) & permuted.known.all(across)
    wrong_there = (marked & permuted.nonzero).any(across)
    if _agree(inside, wrong_there, usable & sure):
        return True
    return False if _agree(wrong, wrong_there, usable) else None


def _agree(expected: Tensor, found: Tensor, usable: Tensor) -> bool:
    """True if two masks (k,) agree at the usable coordinates, up to one exception in ten, and there are enough."""
    return int(usable.sum()) >= _SEVERAL and _EXCEPTIONS * int(((expected != found) & usable).sum()) <= int(
        usable.sum()
    )


def _permuted(evidence: Evidence) -> _Permuted | None:
    """Return both Jacobians at the permuted input; None if they cannot be computed, or backward ignores the point."""
    if not _is_testable(evidence):
        return None
    values = input_and_output_values(evidence)[0][evidence.wrt.coordinates]
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0)).to(values.device)
    point = values.clone()
    point[order] = values[order.roll(1)]  # a cyclic permutation, so that every entry changes its position
    problem = problem_at(evidence, point)
    try:
        backward = backward_of(problem, record(problem), 0)
        of = range(evidence.of.start, evidence.of.stop)
        claimed = torch.stack([found[evidence.wrt.coordinates] for found in rows(backward, of)]).to(evidence.device)
    except EvaluationError:
        return None
    measured = _measured(evidence, point)
    if measured is None or (torch.equal(claimed, evidence.claimed) and _is_constant(evidence)):
        return None
    numeric, known = measured
    size = torch.maximum(claimed.abs(), numeric.abs())
    zero = _ZERO * float(size.nan_to_num(0.0, 0.0, 0.0).max())
    known &= torch.isfinite(claimed) & torch.isfinite(numeric)
    wrong = (claimed - numeric).abs() > _SAME * size + zero
    there = replace(evidence, backward=backward)
    return _Permuted(
        evidence=there, claimed=claimed, numeric=numeric, wrong=wrong & known, known=known, nonzero=size > zero
    )


def _is_testable(evidence: Evidence) -> bool:
    """True for small real tensors in float64, a first derivative, and errors that differences can resolve."""
    problem = evidence.backward.problem
    plain = all(primal.project is None and primal.tensor.dtype == torch.float64 for primal in problem.primals)
    small = max(total(evidence.of.shape), total(evidence.wrt.shape)) <= _LARGEST
    if not plain or not small or problem.order > 1 or evidence.of.step != 1 or evidence.wrt.step != 1:
        return False
    claimed, numeric = evidence.claimed[evidence.wrong], evidence.numeric[evidence.wrong]
    return bool(((claimed - numeric).abs() > _CLEAR * torch.maximum(claimed.abs(), numeric.abs())).all())


def _measured(evidence: Evidence, point: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the fourth-order central differences at `point` and the mask of the known ones, each (m, n).

    Returns None if forward fails at a sample. Entries at a kink are not known.
    """
    size = point.abs()
    typical = float(size.median()) or 1.0
    slopes, known = [], []
    for column, step in enumerate((_STEP * torch.where(size > 0, size, typical)).tolist()):
        perturbation = torch.zeros_like(point)
        perturbation[column] = step
        values = [outputs_at(evidence, point + k * perturbation) for k in (-2, -1, 1, 2)]
        if any(value is None for value in values):
            return None
        far_below, below, above, far_above = (value for value in values if value is not None)
        second_order = (above - below) / (2 * step)
        fourth_order = (4 * second_order - (far_above - far_below) / (4 * step)) / 3
        slopes.append(fourth_order)
        known.append((fourth_order - second_order).abs() <= _BENT * fourth_order.abs().max())
    return torch.stack(slopes, dim=1), torch.stack(known, dim=1)


def _is_constant(evidence: Evidence) -> bool:
    """True if backward ignores the point: scaling all inputs changes the derivative, but not a vjp.

    Then the wrong entries at the permuted input are no evidence. False if an evaluation fails.
    """
    problem = evidence.backward.problem
    cotangent = random_magnitudes_from(
        torch.ones(max(block.stop for block in evidence.outputs), dtype=torch.float64), 0
    )
    vjps, slopes = [], []
    for factor in (1.0, 1.25):
        at = [primal.tensor * factor for primal in problem.primals]
        primals = [replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, at, strict=True)]
        there = replace(problem, primals=tuple(primals))
        try:
            vjps.append(row(backward_of(there, record(there), 0), cotangent))
            above, below = (flatten(each.tensor for each in call(there, [t * by for t in at])) for by in _BESIDE)
        except EvaluationError:
            return False
        slopes.append(above - below)
    change = slopes[1] - 1.25 * slopes[0]  # 0 if the function is linear in all inputs together
    return torch.equal(*vjps) and bool((change.abs() > _SAME * slopes[1].abs().max()).any())
