"""A block at another point: with its input elsewhere, or with the entries of its input permuted.

The latter tells whether wrong coordinates depend on the values of the input or on the position. If a branch is wrong,
the wrong entries follow the values; at an edge of a tensor, or at a step of a recurrence, they stay at their positions.
With few coordinates, both descriptions may fit by coincidence. So the entries of the input are permuted, both Jacobians
are computed again, and a region of values has to contain the wrong coordinates there too.
"""

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
from gradverify.core.model.coordinates import flatten, total
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.problem import Meter, Problem, call, fresh
from gradverify.core.model.tape import record
from gradverify.diagnosis.naming.variables import input_and_output_values
from gradverify.diagnosis.tuning import EQUAL_FACTORS
from gradverify.errors import EvaluationError, GradverifyError
from gradverify.evidence import Evidence, evidence_of, jacobian_pair

_ANY_ERROR = 1e3  # relative tolerance by which no claim is accused
_CLEAR = 1e-3  # relative error that is clear
_LARGEST = 64  # entries of the input and of the output: in larger tensors a coincidence is unlikely
_SCALE = 1.25  # factor on all inputs at which a derivative that depends on them is another one


def permuted_block(evidence: Evidence) -> Evidence | None:
    """Return the block at the permuted input; None if large, unknown there, or if backward ignores all inputs."""
    if max(total(evidence.of.shape), total(evidence.wrt.shape)) > _LARGEST or evidence.backward.problem.order > 1:
        return None
    if not all_set(clear_errors(evidence)):
        return None
    inputs = input_and_output_values(evidence)[0]
    values = inputs[evidence.wrt.coordinates]
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0)).to(values.device)
    point = values.clone()
    point[order] = values[order.roll(1)]  # a cyclic permutation, so that every entry changes its position
    there = evidence_at(evidence, shifted_problem(evidence, point))
    if there is None:
        return None
    if torch.equal(there.claimed, evidence.claimed):
        scaled = evidence_at(evidence, problem_at(evidence.backward.problem, _SCALE * inputs))
        if scaled is not None and ignores(evidence, scaled):
            return None
    return there


def ignores(evidence: Evidence, there: Evidence) -> bool:
    """True if the derivative changes between the points but the claims do not: then errors cannot follow the values."""
    change = (there.numeric - evidence.numeric).abs()
    has_changed = bool((change > EQUAL_FACTORS * evidence.numeric.abs().max() + there.bar + evidence.bar).any())
    return has_changed and torch.equal(there.claimed, evidence.claimed)


def shifted_problem(evidence: Evidence, point: Tensor) -> Problem:
    """Return the problem with the block's input at `point` (n,) and all other inputs unchanged."""
    all_inputs = input_and_output_values(evidence)[0].clone()
    all_inputs[evidence.wrt.coordinates] = point
    return problem_at(evidence.backward.problem, all_inputs)


def clear_errors(evidence: Evidence) -> Tensor:
    """Mask of the wrong entries (k,) whose errors are clear; those of an approximation are not, at any point."""
    claimed, numeric = evidence.claimed[evidence.wrong], evidence.numeric[evidence.wrong]
    return (claimed - numeric).abs() > _CLEAR * torch.maximum(claimed.abs(), numeric.abs())


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
    return evidence_of(jacobians, outputs[of], inputs[wrt])


def outputs_at(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the block's output (m,) at the input `point` (n,), None if forward fails or returns fewer outputs."""
    problem = shifted_problem(evidence, point)
    try:
        outputs = flatten(output.tensor for output in call(problem, [primal.tensor for primal in problem.primals]))
    except EvaluationError:
        return None
    return outputs[evidence.of.coordinates].to(evidence.device).double() if len(outputs) >= evidence.of.stop else None


def _of_one_input(problem: Problem, number: int) -> Problem:
    """Return the problem as a function of one of its inputs, with the others fixed: it has fewer columns."""
    inner = replace(problem, meter=Meter())  # its calls are counted by the meter of the outer one

    def function(tensor: Tensor) -> dict[str, Tensor]:
        given = [fresh(primal.tensor) for primal in problem.primals]
        given[number] = tensor
        return {output.name: output.tensor for output in call(inner, given)}

    primal = replace(problem.primals[number], project=None, like=None)  # the inner problem applies both
    return replace(problem, function=function, finer=None, primals=(primal,), outputs=None, output="")


def evidence_at(evidence: Evidence, problem: Problem) -> Evidence | None:
    """Return the block of a problem at another point; None if it is not known there.

    No entry is accused, which would cost a confirmation; the wrong ones are those that differ clearly.
    """
    settings = Settings(tolerances=Tolerances(rtol=_ANY_ERROR))
    try:
        found = evidence_in(_of_one_input(problem, evidence.wrt.tensor), evidence.of.name, evidence.wrt.name, settings)
    except GradverifyError:
        return None
    if found is None:
        return None
    size = torch.maximum(found.claimed.abs(), found.numeric.abs())
    wrong = (found.claimed - found.numeric).abs() > EQUAL_FACTORS * size + BAR_FACTOR * found.bar
    return replace(found, wrong=wrong)
