"""Tell whether torch's own derivative of a forward agrees with backward or with differences, where these disagree.

Torch can differentiate the forward of a hand-written Function, run as plain code. That is asked after all checks, and
no verdict depends on it: what a forward hides from autograd has no derivative there, and a rule of torch's own can be
wrong too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks import gradcheck
from gradverify.checks.contract.nodes import custom_nodes
from gradverify.checks.reference.evaluate import as_plain_code
from gradverify.core.backward.vjps import flat_gradients
from gradverify.core.model.coordinates import Block, blocks, flatten, unflatten
from gradverify.core.model.magnitudes import TINY, identical
from gradverify.core.model.problem import Meter, Problem
from gradverify.core.model.tape import Tape, function_nodes, graph_nodes, record, vjp
from gradverify.core.tuning import SMALL_PART
from gradverify.deadline import is_late
from gradverify.nested import Named
from gradverify.result import (
    AgreesWith,
    CheckResult,
    Element,
    ElementVerdict,
    Finding,
    Index,
    TorchDerivative,
    Verdict,
)
from gradverify.run.usage.measure import attempt

_IN_CPP = "torch::autograd::CppNode"  # begins the names of nodes of Functions in C++


def with_second_opinion(problem: Problem, checks: Sequence[CheckResult]) -> tuple[CheckResult, ...]:
    """Return the checks, a gradcheck that failed with what torch's own derivative agrees with.

    Unchanged if there is no such derivative, if it agrees with neither side, or past half of the time limit. Raises
    nothing but KeyboardInterrupt.
    """
    if is_late(problem.deadline):
        return tuple(checks)
    return tuple(_with_opinion(problem, check) if check.check == gradcheck.NAME else check for check in checks)


def _with_opinion(problem: Problem, check: CheckResult) -> CheckResult:
    """Compare wrong entries of the output that has the largest error. Costs a forward, and one as plain code."""
    wrong = _wrong(check)
    if check.torch_derivative is not None or not wrong:
        return check
    worst, entry = max(wrong, key=lambda pair: pair[1].error)
    row = [(finding, each) for finding, each in wrong if _output(finding, each) == _output(worst, entry)]
    values = attempt(lambda: _torch_row(problem, str(worst.of), entry.output_index, row))
    if values is None or isinstance(values, str):
        return check
    return replace(check, torch_derivative=_agreement(values, [each for _, each in row]))


def _wrong(check: CheckResult) -> list[tuple[Finding, Element]]:
    """Return the wrong elements of a failed check with their findings, without those that are not finite."""
    return [
        (finding, element)
        for finding in check.findings
        if finding.verdict is Verdict.FAIL and finding.of is not None and finding.wrt is not None
        for element in finding.elements
        if element.verdict is ElementVerdict.MISMATCH and math.isfinite(element.analytic - element.numeric)
    ]


def _output(finding: Finding, element: Element) -> tuple[str | None, Index]:
    return finding.of, element.output_index


def _agreement(values: Sequence[float], elements: Sequence[Element]) -> TorchDerivative | None:
    for side in AgreesWith:
        others = [float(getattr(element, side)) for element in elements]
        pairs = list(zip(values, others, strict=True))
        if all(abs(one - two) <= _slack(each) for (one, two), each in zip(pairs, elements, strict=True)):
            difference = max(abs(one - two) / max(abs(one), abs(two), TINY) for one, two in pairs)
            return TorchDerivative(agrees_with=side, entries=len(pairs), difference=difference)
    return None


def _slack(element: Element) -> float:
    """Return how far torch's value may be from one side: within the tolerance, and small beside the error."""
    return min(element.allowed, SMALL_PART * element.error)


def _torch_row(problem: Problem, of: str, index: Index, row: Sequence[tuple[Finding, Element]]) -> list[float] | None:
    """Return torch's own derivative of one entry of the output by the input of each element; None if there is none.

    There is none if no backward is hand-written, if one is left in plain code (a Function in C++, an operator with a
    registered backward), if plain code returns other outputs, or if it hides an output or an input from autograd.
    """
    uncounted = replace(problem, meter=Meter(), fresh_graphs=False, accumulates=False)
    own, plain = record(uncounted), as_plain_code(uncounted)
    tape = record(plain) if custom_nodes(own) else None
    if tape is None or not _is_torchs_own(tape) or not _same_outputs(own, tape):
        return None
    weights = torch.zeros_like(flatten(output.tensor for output in tape.outputs))
    _entries(weights, blocks(tape.outputs), of)[index] = 1.0
    with torch.no_grad():
        grads = vjp(plain, tape, unflatten(weights, [output.tensor for output in tape.outputs]))
    primals = blocks(Named(name=primal.name, tensor=primal.tensor) for primal in problem.primals)
    used = {block.name for block in primals if grads[block.tensor] is not None}
    if any(finding.wrt not in used for finding, _ in row):
        return None
    flat = flat_gradients(plain, grads)
    return [float(_entries(flat, primals, str(finding.wrt))[element.input_index]) for finding, element in row]


def _entries(flat: Tensor, parts: Sequence[Block], name: str) -> Tensor:
    """Return the view of a vector of coordinates that has the shape of the block with this name."""
    block = next(part for part in parts if part.name == name)
    return flat[block.coordinates].view(block.shape)


def _is_torchs_own(tape: Tape) -> bool:
    """True if every output has a graph, and torch has derived all of it."""
    outputs = [output.tensor for output in tape.outputs]
    return (
        all(output.requires_grad for output in outputs)
        and not function_nodes(outputs)
        and not any(node.name().startswith(_IN_CPP) for node in graph_nodes(outputs))
    )


def _same_outputs(own: Tape, plain: Tape) -> bool:
    """True if both forwards return the same numbers, a NaN for a NaN."""
    one, other = (flatten(output.tensor for output in tape.outputs) for tape in (own, plain))
    return own.shapes == plain.shapes and identical(one, other)
