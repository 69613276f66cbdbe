"""Whether forward acts as a map over a new leading dimension, and whether matrices are far from singular."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.case import Case
from gradverify.core.model.problem import Problem, call
from gradverify.errors import EvaluationError
from gradverify.exploration.inputs import tensor_at, with_tensor
from gradverify.exploration.tools import Tools

_CLOSE = 1e-6  # relative difference of outputs that are computed in another order
_WORST_CONDITION = 1e8
# Words in the names of operators that have no derivative at a singular matrix.
_DECOMPOSITIONS = frozenset({
    "cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "geqrf", "inv", "inverse", "lstsq", "lu", "qr", "slogdet",
    "solve", "svd",
})  # fmt: skip


def is_mapped(case: Case, problem: Problem, paths: Sequence[str], tools: Tools) -> bool:
    """Return True if output number k is what forward returns for slice k of the inputs at `paths`; may raise."""
    whole = _forward(problem)
    if not whole or any(output.dim() == 0 for output in whole):
        return False
    for number in range(tensor_at(case, paths[0], tools).shape[0]):
        part = case
        for path in paths:
            values = tensor_at(case, path, tools)
            part = with_tensor(part, path, values[number])
        try:
            alone = _forward(tools.build(part))
        except EvaluationError:
            return False
        if len(alone) != len(whole) or not all(map(_equal, [output[number] for output in whole], alone)):
            return False
    return True


def uses_matrices(operators: frozenset[str]) -> bool:
    """Return True if an operator among these solves equations or decomposes matrices."""
    return any(not _DECOMPOSITIONS.isdisjoint(re.split(r"[._]", operator)) for operator in operators)


def is_well_conditioned(problem: Problem) -> bool:
    """Return True if no differentiated input of two or more dimensions is close to a singular matrix."""
    for primal in problem.primals:
        values = primal.tensor
        if values.dim() >= 2 and values.numel():
            condition = torch.linalg.cond(values if values.is_complex() else values.double())
            if not bool((condition < _WORST_CONDITION).all()):
                return False
    return True


def _forward(problem: Problem) -> list[Tensor]:
    with torch.no_grad():
        found = call(problem, [primal.tensor.clone() for primal in problem.primals])
    return [output.tensor.detach() for output in found]


def _equal(part: Tensor, alone: Tensor) -> bool:
    return part.shape == alone.shape and torch.allclose(part, alone, rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
