"""The causes of wrong gradients, from all entries of small Jacobians with the reference in place of differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.reference.error_model import Precision, error_factor
from gradverify.checks.reference.evaluate import by_inputs_of, connected_outputs, with_outputs
from gradverify.core.backward.vjps import Backward, backward_of, outputs_in, row
from gradverify.core.decide.verdict import Code
from gradverify.core.model.coordinates import blocks
from gradverify.core.model.problem import Named, Problem
from gradverify.core.model.tape import record, record_all
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnose, Evidence, JacobianPair, undiagnosed
from gradverify.result import Finding

_GRADIENT = "GV702"
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

    `reference` is in float64. Costs a vjp of both per output; nothing is added if user code raises.
    """
    if diagnose is undiagnosed or all(finding.code != _GRADIENT for finding in findings):
        return tuple(findings)
    try:
        backward = backward_of(problem, record(problem), seed)
        if not _is_small(backward):
            return tuple(findings)
        tape, other = record_all(problem), by_inputs_of(problem, reference)
        wide = with_outputs(record_all(other), connected_outputs(tape))
        pair = _jacobians(backward, backward_of(other, wide, seed), precision)
        return tuple(_with_cause(finding, backward, pair, diagnose) for finding in findings)
    except EvaluationError:
        return tuple(findings)


def _is_small(backward: Backward) -> bool:
    rows, columns = outputs_in(backward.tape), len(backward.known_vjp[1])
    return rows <= _ROWS and rows * columns <= _ENTRIES


def _jacobians(backward: Backward, reference: Backward, precision: Precision) -> JacobianPair:
    claimed, numeric = _rows(backward), _rows(reference)
    size = numeric.abs()
    bar = error_factor(precision, len(numeric)) * precision.eps * torch.maximum(size, size.mean(dim=1, keepdim=True))
    return JacobianPair(
        outputs=blocks(backward.tape.outputs),
        inputs=blocks(Named(name=primal.name, tensor=primal.tensor) for primal in backward.problem.primals),
        claimed=claimed,
        numeric=numeric,
        bar=bar,
        code=torch.where((claimed - numeric).abs() > bar, int(Code.MISMATCH), int(Code.MATCH)),
    )


def _rows(backward: Backward) -> Tensor:
    """Return the Jacobian, (outputs, inputs), by one vjp for each output."""
    device = backward.known_vjp[1].device
    return torch.stack(
        [row(backward, each) for each in torch.eye(outputs_in(backward.tape), dtype=torch.float64, device=device)]
    )


def _with_cause(finding: Finding, backward: Backward, pair: JacobianPair, diagnose: Diagnose) -> Finding:
    if finding.code != _GRADIENT:
        return finding
    found = next(filter(None, map(diagnose, _evidence(finding, backward, pair))), None)
    if found is None:
        return finding
    return replace(finding, cause=found.cause, message=f"{finding.message}\n{found.explanation}")


def _evidence(finding: Finding, backward: Backward, pair: JacobianPair) -> list[Evidence]:
    """Return the blocks of the Jacobian by this input that have wrong entries."""
    wrt = next(block for block in pair.inputs if block.name == finding.wrt)
    found = []
    for of in pair.outputs:
        part = of.coordinates, wrt.coordinates
        if bool(pair.wrong[part].any()):
            found.append(
                Evidence(
                    of=of,
                    wrt=wrt,
                    claimed=pair.claimed[part],
                    numeric=pair.numeric[part],
                    bar=pair.bar[part],
                    wrong=pair.wrong[part],
                    backward=backward,
                    jacobians=pair,
                )
            )
    return found
