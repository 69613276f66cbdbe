"""The causes of wrong gradients, from entries of both Jacobians with the reference in place of differences.

A Jacobian that is too large is replaced by that of a few weighted sums over all outputs. Causes that show in the inputs
alone, such as a factor, a mask or a forgotten tile, show there too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.reference.error_model import Precision, error_factor
from gradverify.checks.reference.evaluate import by_inputs_of, connected_outputs, with_outputs
from gradverify.checks.reference.sums import Sums, in_sums, random_sums
from gradverify.core.backward.vjps import Backward, backward_of, flat_vjp, outputs_in
from gradverify.core.decide.verdict import Code
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.coordinates import Block, blocks, coordinates_in
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record_all
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnose, Evidence, JacobianPair, evidence_of, undiagnosed
from gradverify.nested import Named
from gradverify.result import Finding, Verdict

GRADIENT = "GV702"  # code of gradients that differ
_ROWS, _ENTRIES = 256, 10_000  # outputs and entries of the largest Jacobian that is computed, one vjp per output


def with_causes(
    findings: Sequence[Finding],
    problem: Problem,
    reference: Problem,
    precision: Precision,
    seed: int,
    diagnose: Diagnose,
) -> tuple[Finding, ...]:
    """Return the findings, those on gradients with a cause if one explains the error of an output's block.

    `reference` is in float64. Costs a vjp of both per output, or per weighted sum; nothing is added if user code
    raises.
    """
    if diagnose is undiagnosed or not any(map(_is_wrong_gradient, findings)):
        return tuple(findings)
    try:
        tape, other = record_all(problem), by_inputs_of(problem, reference)
        connected = connected_outputs(tape)
        if _is_small(problem, tape):
            pair = _jacobians(problem, other, connected, precision, seed)
            return tuple(_with_cause(finding, pair, diagnose) for finding in findings)
        for sums in random_sums([tape.outputs[number] for number in connected], seed):
            if any(_may_show(sums, problem, finding) for finding in findings):
                own, theirs = (in_sums(each, connected, sums) for each in (problem, other))
                pair = _jacobians(own, theirs, (0,), precision, seed)
                findings = [_with_cause(finding, pair, diagnose, sums.note) for finding in findings]
    except EvaluationError:
        pass
    return tuple(findings)


def _is_wrong_gradient(finding: Finding) -> bool:
    return finding.code == GRADIENT and finding.verdict is Verdict.FAIL


def _is_small(problem: Problem, tape: Tape) -> bool:
    rows, columns = outputs_in(tape), sum(coordinates_in(primal.tensor) for primal in problem.primals)
    return rows <= _ROWS and rows * columns <= _ENTRIES


def _may_show(sums: Sums, problem: Problem, finding: Finding) -> bool:
    """True if no cause is known yet, and the slices summed over are not slices of the input too."""
    if not _is_wrong_gradient(finding) or finding.cause:
        return False
    wrt = next(block for block in _inputs(problem) if block.name == finding.wrt)
    return sums.dimension is None or sums.shape[sums.dimension] not in wrt.shape


def _inputs(problem: Problem) -> tuple[Block, ...]:
    return blocks(Named(name=primal.name, tensor=primal.tensor) for primal in problem.primals)


def _jacobians(
    problem: Problem, reference: Problem, connected: Sequence[int], precision: Precision, seed: int
) -> JacobianPair:
    """Return both Jacobians of the outputs numbered `connected`."""
    backward, other = (
        backward_of(each, with_outputs(record_all(each), connected), seed) for each in (problem, reference)
    )
    claimed, numeric = _rows(backward), _rows(other)
    size = numeric.abs()
    allowed = (
        error_factor(precision, len(numeric)) * precision.eps * torch.maximum(size, size.mean(dim=1, keepdim=True))
    )
    return JacobianPair(
        backward=backward,
        outputs=blocks(backward.tape.outputs),
        inputs=_inputs(problem),
        claimed=claimed,
        numeric=numeric,
        bar=allowed / BAR_FACTOR,
        code=torch.where((claimed - numeric).abs() > allowed, int(Code.MISMATCH), int(Code.MATCH)),
        maybe_kinked=torch.ones_like(claimed, dtype=torch.bool),  # the reference is not sampled
        eps=precision.eps,
    )


def _rows(backward: Backward) -> Tensor:
    """Return the Jacobian, (outputs, inputs), by one vjp for each output."""
    device = backward.known_vjp[1].device
    return torch.stack(
        [flat_vjp(backward, each) for each in torch.eye(outputs_in(backward.tape), dtype=torch.float64, device=device)]
    )


def _with_cause(finding: Finding, pair: JacobianPair, diagnose: Diagnose, note: str = "") -> Finding:
    if not _is_wrong_gradient(finding) or finding.cause:
        return finding
    found = next(filter(None, map(diagnose, _evidence(finding, pair))), None)
    if found is None:
        return finding
    return replace(
        finding, cause=found.cause, message=f"{finding.message}\n{found.explanation}{f' ({note})' if note else ''}"
    )


def _evidence(finding: Finding, pair: JacobianPair) -> list[Evidence]:
    """Return the blocks of the Jacobian by this input that have wrong entries."""
    wrt = next(block for block in pair.inputs if block.name == finding.wrt)
    parts = [evidence_of(pair, of, wrt) for of in pair.outputs]
    return [part for part in parts if bool(part.wrong.any())]
