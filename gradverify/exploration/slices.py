"""Whether forward is a map over a new dimension, or broadcasts one of size 1, and whether matrices are singular."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.case import Case
from gradverify.core.model.problem import Problem, call
from gradverify.core.model.tape import record, vjp
from gradverify.errors import EvaluationError
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


def why_no_map(paths: Sequence[str], case: Case, problem: Problem, tools: Tools) -> str:
    """Return "" if output number k is what forward returns for slice k of the inputs at `paths`; may raise."""
    whole = _forward(problem)
    if not whole or any(output.dim() == 0 for output in whole):
        return _NO_MAP
    for number in range(tensor_at(case, paths[0], tools).shape[0]):
        part = case
        for path in paths:
            values = tensor_at(case, path, tools)
            part = with_tensor(part, path, values[number])
        try:
            alone = _forward(tools.build(part))
        except EvaluationError:
            return _NO_MAP
        if len(alone) != len(whole) or not all(map(_equal, [output[number] for output in whole], alone)):
            return _NO_MAP
    return ""


def why_not_broadcast(path: str, axis: int, size: int, case: Case, problem: Problem, tools: Tools) -> str:
    """Return "" if forward returns for an input with one slice what it returns for `size` copies of it; may raise.

    A loss that takes one label for a batch without meaning to repeats it in some of its terms only. If forward and
    backward run with another number of slices too, the sizes only happened to be equal, and one is as good as any.
    """
    try:
        found, wide = _forward(problem), _forward(_with_copies(case, path, axis, size, tools))
        if len(found) == len(wide) and all(map(_equal_when_repeated, found, wide)):
            return ""
        another = _with_copies(case, path, axis, 2 if size != 2 else 3, tools)
        tape = record(another)
        vjp(another, tape, [torch.ones_like(output.tensor) for output in tape.outputs])
    except EvaluationError:
        return "forward does not broadcast a dimension of size 1"
    return ""


def _with_copies(case: Case, path: str, axis: int, count: int, tools: Tools) -> Problem:
    """Return the problem with the only slice of an input repeated."""
    values = tensor_at(case, path, tools)
    repeated = values.expand(*values.shape[:axis], count, *values.shape[axis + 1 :]).contiguous()
    return tools.build(with_tensor(case, path, repeated))


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


def _forward(problem: Problem) -> list[Tensor]:
    with torch.no_grad():
        found = call(problem, [primal.tensor.clone() for primal in problem.primals])
    return [output.tensor.detach() for output in found]


def _equal_when_repeated(narrow: Tensor, wide: Tensor) -> bool:
    try:
        return _equal(narrow.broadcast_to(wide.shape), wide)
    except RuntimeError:  # the shapes do not fit
        return False


def _equal(part: Tensor, alone: Tensor) -> bool:
    return part.shape == alone.shape and torch.allclose(part, alone, rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
