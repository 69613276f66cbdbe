"""Whether what is wrong goes with the values, or stays in its place.

A branch is taken by the values, so it moves with them; an edge, or a step of a recurrence, does not. Of a few
coordinates both say the same by coincidence. So the entries of the input change places, all derivatives are compared
again, and a region of values has to hold there as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import rows
from gradverify.core.backward.vjps import reverse, row
from gradverify.core.model.coordinates import flatten, total
from gradverify.core.model.generators import scattered_from
from gradverify.core.model.problem import call
from gradverify.core.model.tape import record
from gradverify.core.whole.evidence import Evidence
from gradverify.diagnosis.block.moved import moved, outputs_at
from gradverify.diagnosis.naming.region import Region
from gradverify.diagnosis.naming.variables import Axis, coordinates, variables
from gradverify.errors import EvaluationError

_FEW = 64  # entries of an input and of an output: of more, a coincidence is no coincidence
_STEP = 1e-3  # of the size of an entry
_BESIDE = (1 + _STEP, 1 - _STEP)  # all inputs together
_SAME = 1e-5  # relative: entries that are right
_BENT = 1e-3  # relative: differences of second and fourth order that are further apart straddle a kink
_CLEAR = 1e-3  # relative: only where all wrong entries are off by more, these are told from right ones
_FAINT = 1e-9  # of the largest entry: what is zero
_SEVERAL = 2  # coordinates that have to tell
_SURE = 5e-3  # chance of a region that needs no test
_TOLERATED = 10  # one of so many may say otherwise

Marks = Callable[[Tensor, Tensor], Tensor]  # (claimed, numeric) -> bool, (m, n): what a region should hold of


class Follows(Protocol):
    """What tells whether wrong coordinates, or those with marked entries, are a region's where values change places.

    False where they are those that are `wrong` (k,) here, None where it cannot be told.
    """

    def __call__(self, axis: Axis, wrong: Tensor, region: Region, marks: Marks | None = None) -> bool | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """Both Jacobians of a block with the entries of its input in other places, (m, n)."""

    evidence: Evidence
    claimed: Tensor
    numeric: Tensor
    wrong: Tensor  # bool
    known: Tensor  # bool
    filled: Tensor  # bool: not zero on both sides


def follower(evidence: Evidence) -> Follows:
    """Return what tells whether regions of a block hold elsewhere; it looks once, and only if asked."""
    again = cache(lambda: _again(evidence))

    def follows(axis: Axis, wrong: Tensor, region: Region, marks: Marks | None = None) -> bool | None:
        found = again() if region.tells is not None else None
        if found is None:
            return None
        marked = found.wrong if marks is None else marks(found.claimed, found.numeric)
        return _followed(found, axis, region, wrong, marked)

    return follows


def believed(regions: Iterable[Region], follows: Callable[[Region], bool | None]) -> Region | None:
    """Return the first region that moves with the values, or that alone is there and no coincidence explains.

    None where what is wrong stays in its place. Where nothing can be told, the first one with a threshold that means
    something, or else the first one.
    """
    found = list(regions)
    told: list[Region] = []
    for region in found:
        sure = region.tells is None or (region.chance <= _SURE and len(found) == 1)
        moves = True if sure else follows(region)
        if moves:
            return region
        if moves is None or region.chance <= _SURE:
            told.append(region)
    return next((region for region in told if region.anchored), told[0] if told else None)


def _followed(again: _Again, axis: Axis, region: Region, wrong: Tensor, marked: Tensor) -> bool | None:
    others = {variable.name: variable.values for variable in variables(again.evidence, axis)}
    told = None if region.tells is None else region.tells(others)
    if told is None:
        return None
    (inside, sure), across = told, 1 - axis.value
    asked = again.filled.any(across) & again.known.all(across)
    there = (marked & again.filled).any(across)
    if _agree(inside, there, asked & sure):
        return True
    return False if _agree(wrong, there, asked) else None


def _agree(expected: Tensor, found: Tensor, asked: Tensor) -> bool:
    return int(asked.sum()) >= _SEVERAL and _TOLERATED * int(((expected != found) & asked).sum()) <= int(asked.sum())


def _again(evidence: Evidence) -> _Again | None:
    """Compare again with the entries of the input in other places; None where that cannot be, or would tell nothing."""
    if not _may_be_asked(evidence):
        return None
    values = coordinates(evidence)[0][evidence.wrt.coordinates]
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0)).to(values.device)
    point = values.clone()
    point[order] = values[order.roll(1)]  # none stays where it was
    problem = moved(evidence, point)
    try:
        backward = reverse(problem, record(problem), 0)
        of = range(evidence.of.start, evidence.of.stop)
        claimed = torch.stack([found[evidence.wrt.coordinates] for found in rows(backward, of)]).to(evidence.device)
    except EvaluationError:
        return None
    measured = _measured(evidence, point)
    if measured is None or (torch.equal(claimed, evidence.claimed) and _is_constant(evidence)):
        return None
    numeric, known = measured
    size = torch.maximum(claimed.abs(), numeric.abs())
    faint = _FAINT * float(size.nan_to_num(0.0, 0.0, 0.0).max())
    known &= torch.isfinite(claimed) & torch.isfinite(numeric)
    wrong = (claimed - numeric).abs() > _SAME * size + faint
    there = replace(evidence, backward=backward)
    return _Again(
        evidence=there, claimed=claimed, numeric=numeric, wrong=wrong & known, known=known, filled=size > faint
    )


def _may_be_asked(evidence: Evidence) -> bool:
    problem = evidence.backward.problem
    plain = all(primal.project is None and primal.tensor.dtype == torch.float64 for primal in problem.primals)
    few = max(total(evidence.of.shape), total(evidence.wrt.shape)) <= _FEW
    if not plain or not few or problem.order > 1 or evidence.of.step != 1 or evidence.wrt.step != 1:
        return False
    claimed, numeric = evidence.claimed[evidence.wrong], evidence.numeric[evidence.wrong]
    return bool(((claimed - numeric).abs() > _CLEAR * torch.maximum(claimed.abs(), numeric.abs())).all())


def _measured(evidence: Evidence, point: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the differences of fourth order by every entry of the input, and which of them are known; (m, n)."""
    size = point.abs()
    typical = float(size.median()) or 1.0
    slopes, known = [], []
    for place, step in enumerate((_STEP * torch.where(size > 0, size, typical)).tolist()):
        move = torch.zeros_like(point)
        move[place] = step
        values = [outputs_at(evidence, point + k * move) for k in (-2, -1, 1, 2)]
        if any(value is None for value in values):
            return None
        far_below, below, above, far_above = (value for value in values if value is not None)
        plain = (above - below) / (2 * step)
        fine = (4 * plain - (far_above - far_below) / (4 * step)) / 3
        slopes.append(fine)
        known.append((fine - plain).abs() <= _BENT * fine.abs().max())
    return torch.stack(slopes, dim=1), torch.stack(known, dim=1)


def _is_constant(evidence: Evidence) -> bool:
    """Tell whether backward says the same wherever the inputs are, although the derivative is not: it tells nothing."""
    problem = evidence.backward.problem
    cotangent = scattered_from(torch.ones(max(block.stop for block in evidence.outputs), dtype=torch.float64), 0)
    answers, slopes = [], []
    for factor in (1.0, 1.25):
        at = [primal.tensor * factor for primal in problem.primals]
        primals = [replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, at, strict=True)]
        there = replace(problem, primals=tuple(primals))
        try:
            answers.append(row(reverse(there, record(there), 0), cotangent))
            above, below = (flatten(each.tensor for each in call(there, [t * by for t in at])) for by in _BESIDE)
        except EvaluationError:
            return False
        slopes.append(above - below)
    grown = slopes[1] - 1.25 * slopes[0]  # as of all that is linear in all inputs
    return torch.equal(*answers) and bool((grown.abs() > _SAME * slopes[1].abs().max()).any())
