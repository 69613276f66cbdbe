"""The problem with one input at another point."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings, Tolerances
from gradverify.core.decide.backward_rounding import problem_at
from gradverify.core.decide.context import unchanged
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.jacobians import investigate
from gradverify.core.model.coordinates import flatten
from gradverify.core.model.problem import Problem, call
from gradverify.core.model.tape import record
from gradverify.diagnosis.naming.variables import input_and_output_values
from gradverify.errors import EvaluationError, GradverifyError
from gradverify.evidence import Evidence, evidence_of, jacobian_pair

_ANY_ERROR = 1e3  # relative tolerance by which no claim is accused
_CLEAR = 1e-3  # relative error that is clear
_SAME = 1e-5  # relative difference of derivatives that count as equal


def shifted_problem(evidence: Evidence, point: Tensor) -> Problem:
    """Return the problem with the block's input at `point` (n,) and all other inputs unchanged."""
    all_inputs = input_and_output_values(evidence)[0].clone()
    all_inputs[evidence.wrt.coordinates] = point
    return problem_at(evidence.backward.problem, all_inputs)


def evidence_at(evidence: Evidence, point: Tensor) -> Evidence | None:
    """Return the block with its input at `point` (n,) and all other inputs unchanged; None if it is not known there."""
    return _known_evidence(evidence, shifted_problem(evidence, point))


def clear_errors(evidence: Evidence) -> Tensor:
    """Mask of the wrong entries (k,) whose errors are clear; those of an approximation are not, at any point."""
    claimed, numeric = evidence.claimed[evidence.wrong], evidence.numeric[evidence.wrong]
    return (claimed - numeric).abs() > _CLEAR * torch.maximum(claimed.abs(), numeric.abs())


def evidence_scaled(evidence: Evidence, factor: float) -> Evidence | None:
    """Return the block with all inputs times a factor; None if it is not known there."""
    problem = evidence.backward.problem
    primals = tuple(replace(primal, tensor=primal.tensor * factor) for primal in problem.primals)
    return _known_evidence(evidence, replace(problem, primals=primals))


def evidence_in(problem: Problem, of: str, wrt: str, settings: Settings) -> Evidence | None:
    """Return the block of the output `of` and the input `wrt` of a problem; None if not all its entries are known.

    Raises EvaluationError if a call fails.
    """
    ready = made_repeatable(problem, record(problem), settings.seed)
    if ready is None:
        return None
    found = investigate(ready, settings, unchanged)
    jacobians = jacobian_pair(found)
    if jacobians is None:
        return None
    outputs, inputs = ({block.name: block for block in blocks} for blocks in (jacobians.outputs, jacobians.inputs))
    return evidence_of(found, jacobians, outputs[of], inputs[wrt])


def outputs_at(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the block's output (m,) at the input `point` (n,), None if forward fails or returns fewer outputs."""
    problem = shifted_problem(evidence, point)
    try:
        outputs = flatten(output.tensor for output in call(problem, [primal.tensor for primal in problem.primals]))
    except EvaluationError:
        return None
    return outputs[evidence.of.coordinates].to(evidence.device).double() if len(outputs) >= evidence.of.stop else None


def _known_evidence(evidence: Evidence, problem: Problem) -> Evidence | None:
    """Return the block of another problem, without the cost of confirming what is wrong; None if it is not known."""
    settings = Settings(tolerances=Tolerances(rtol=_ANY_ERROR))
    try:
        found = evidence_in(problem, evidence.of.name, evidence.wrt.name, settings)
    except GradverifyError:
        return None
    if found is None:
        return None
    size = torch.maximum(found.claimed.abs(), found.numeric.abs())
    wrong = (found.claimed - found.numeric).abs() > _SAME * size + BAR_FACTOR * found.bar
    return replace(found, wrong=wrong)
