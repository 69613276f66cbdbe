"""GV405: the same tensor may be passed for two inputs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

from gradverify.checks.contract.forward_run import same_outputs
from gradverify.checks.contract.subject import Subject, as_coordinates, gradients_of, graph_at, judged_outputs
from gradverify.checks.contract.wording import failure, mismatches, raised
from gradverify.core.model.problem import fresh
from gradverify.core.model.tape import Tape, call_on_leaves, vjp
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_PAIRS = 3  # largest number of pairs of inputs tested


def findings(subject: Subject) -> Iterator[Finding]:
    """GV405: if two inputs are one tensor, its gradient is the sum of the gradients of both."""
    pairs = [pair for pair in combinations(range(len(subject.primals)), 2) if _exchangeable(subject, *pair)]
    for first, second in pairs[:_PAIRS]:
        yield from _compared(subject, first, second)


def _exchangeable(subject: Subject, first: int, second: int) -> bool:
    one, other = subject.primals[first].tensor, subject.primals[second].tensor
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _compared(subject: Subject, first: int, second: int) -> Iterator[Finding]:
    points = [primal.tensor for primal in subject.primals]
    points[second] = points[first]
    try:
        separate = graph_at(subject, points)
        tape = _aliased(subject, points, first, second)
        if not same_outputs(subject, tape, separate):
            return  # forward writes into one input and reads the other, so it computes another function
        answers = gradients_of(subject, separate, subject.cotangents)
    except EvaluationError:
        return  # the point is outside the domain, or forward rejects the alias
    names = f"{subject.primals[first].name} and {subject.primals[second].name}"
    try:
        got = _gradient_of_alias(subject, tape, first)
    except EvaluationError as error:
        yield failure("GV405", f"{raised(error)}, where {names} are one tensor")
        return
    expected = answers[first] + answers[second]
    claim = f"the gradient is not the sum of both where {names} are one tensor"
    yield from mismatches(subject, "GV405", claim, (got,), (expected,), numbers=(first,))


def _aliased(subject: Subject, points: list[Tensor], first: int, second: int) -> Tape:
    leaves = [fresh(point).requires_grad_() for point in points]
    leaves[second] = leaves[first]
    with torch.enable_grad():
        outputs = call_on_leaves(subject.problem, leaves, copied=subject.tape.copied)
    return Tape(leaves=tuple(leaves), outputs=judged_outputs(subject, outputs), copied=subject.tape.copied)


def _gradient_of_alias(subject: Subject, tape: Tape, first: int) -> Tensor:
    grads = vjp(subject.problem, tape, [fresh(cotangent) for cotangent in subject.cotangents])
    return as_coordinates(grads[first], tape.leaves[first])
