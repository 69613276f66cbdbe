"""The function with one input somewhere else."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.problem import Problem, call
from gradverify.core.whole.evidence import Evidence
from gradverify.diagnosis.naming.variables import coordinates
from gradverify.errors import EvaluationError


def moved(evidence: Evidence, point: Tensor) -> Problem:
    """Return the problem with the block's input at another point (n,) and all others where they are."""
    problem = evidence.backward.problem
    whole = coordinates(evidence)[0].clone()
    whole[evidence.wrt.coordinates] = point
    tensors = unflatten(whole, [primal.tensor for primal in problem.primals])
    primals = [replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True)]
    return replace(problem, primals=tuple(primals))


def outputs_at(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the block's outputs (m,) with its input at another point (n,), None where forward fails there."""
    problem = moved(evidence, point)
    try:
        found = flatten(output.tensor for output in call(problem, [primal.tensor for primal in problem.primals]))
    except EvaluationError:
        return None
    return found[evidence.of.coordinates].to(evidence.device).double() if len(found) >= evidence.of.stop else None
