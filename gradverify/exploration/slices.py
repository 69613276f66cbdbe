"""What forward does with slices: maps over new ones, broadcasts a single one, leaves some out; singular matrices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Case
from gradverify.core.model.problem import Problem, call
from gradverify.exploration.inputs import tensor_at, with_tensor
from gradverify.exploration.tools import Tools

_CLOSE = 1e-6  # relative difference of outputs that are computed in another order
_WORST_CONDITION = 1e8
_NO_MAP = "forward is no map over a new dimension"
# Words in the names of operators that have no derivative at a singular matrix.
_DECOMPOSITIONS = frozenset({
    "cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "geqrf", "inv", "inverse", "lstsq", "lu", "qr", "slogdet",
    "solve", "svd",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The copies of the only slice of an input."""

    count: int
    axis: int = 0
    is_new: bool = False  # True if the input has no dimension for them


def outputs(problem: Problem) -> list[Tensor]:
    """Return the outputs of forward; raises EvaluationError."""
    with torch.no_grad():
        found = call(problem, [primal.tensor.clone() for primal in problem.primals])
    return [output.tensor.detach() for output in found]


def outputs_or_none(case: Case, tools: Tools) -> list[Tensor] | None:
    """Return the outputs of forward; None if the inputs cannot be made, or forward raises."""
    try:
        return outputs(tools.build(case))
    except Exception:  # of factories and constructors too
        return None


def all_equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Return True if outputs are the same, up to the order in which they are computed."""
    return len(some) == len(others) and all(map(_equal, some, others))


def why_no_map(paths: Sequence[str], case: Case, problem: Problem, tools: Tools) -> str:
    """Return "" if output number k is what forward returns for slice k of the inputs at `paths`; may raise."""
    whole = outputs(problem)
    if not whole or any(output.dim() == 0 for output in whole):
        return _NO_MAP
    for number in range(tensor_at(case, paths[0], tools).shape[0]):
        part = case
        for path in paths:
            values = tensor_at(case, path, tools)
            part = with_tensor(part, path, values[number])
        alone = outputs_or_none(part, tools)
        if alone is None or not all_equal([output[number] for output in whole], alone):
            return _NO_MAP
    return ""


def why_not_broadcast(copies: Mapping[str, Copies], case: Case, problem: Problem, tools: Tools) -> str:
    """Return "" if forward returns for inputs with one slice what it returns for copies of it; may raise.

    A loss that takes one label for a batch without meaning to repeats it in some of its terms only.
    """
    found, wide = outputs(problem), outputs_or_none(_repeated(case, copies, tools), tools)
    if wide is not None and len(found) == len(wide) and all(map(_equal_when_repeated, found, wide)):
        return ""
    return "forward does not broadcast a dimension of size 1"


def _repeated(case: Case, copies: Mapping[str, Copies], tools: Tools) -> Case:
    """Return the case with the only slice of each of these inputs repeated."""
    for path, each in copies.items():
        values = tensor_at(case, path, tools)
        values = values.unsqueeze(0) if each.is_new else values
        shape = (*values.shape[: each.axis], each.count, *values.shape[each.axis + 1 :])
        case = with_tensor(case, path, values.expand(shape).contiguous())
    return case


def last_matters(case: Case, found: Sequence[Tensor], path: str, axis: int, tools: Tools) -> bool:
    """Return False if forward returns its outputs `found` with the first slice of an input, rolled, for its last too.

    May raise.
    """
    values = tensor_at(case, path, tools)
    if not values.is_floating_point() or not values.shape[axis]:
        return True
    first = values.select(axis, 0)
    values.select(axis, -1).copy_(first.roll(1))  # which no limit of values forbids
    other = outputs_or_none(with_tensor(case, path, values), tools)
    return other is None or not all_equal(found, other)


def uses_matrices(operators: frozenset[str]) -> bool:
    """Return True if an operator among these solves equations or decomposes matrices."""
    return any(not _DECOMPOSITIONS.isdisjoint(re.split(r"[._]", operator)) for operator in operators)


def is_well_conditioned(problem: Problem) -> bool:
    """Return True if no differentiated input of two or more dimensions is close to a singular matrix.

    Those with numbers that are not finite count as none.
    """
    for primal in problem.primals:
        values = primal.tensor
        if values.dim() < 2 or not values.numel() or values.layout is not torch.strided:
            continue
        values = values.to(torch.complex128 if values.is_complex() else torch.float64)
        if bool(values.isfinite().all()):
            condition = torch.linalg.cond(values)
            if not bool((condition < _WORST_CONDITION).all()):
                return False
    return True


def _equal_when_repeated(narrow: Tensor, wide: Tensor) -> bool:
    try:
        return _equal(narrow.broadcast_to(wide.shape), wide)
    except RuntimeError:  # the shapes do not fit
        return False


def _equal(part: Tensor, alone: Tensor) -> bool:
    return part.shape == alone.shape and torch.allclose(part, alone, rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
