"""Backward as a function of its cotangents: asked one by one, on a recorded graph as long as that serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor

from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import scattered_from
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Rejected, Tape, is_intact, pulled_back, record
from gradverify.errors import EvaluationError


class Reuse(Enum):
    """Whether one recorded graph serves many vjps."""

    SHARED = "shared"
    FRESH = "fresh"  # backward destroys what it saved, or answers differently the second time
    WORN = "worn"  # the graph answered several times and then failed, or answered differently


@dataclass(slots=True, kw_only=True)
class Graph:
    """What is known of the recorded graph; its value changes."""

    reuse: Reuse | None = None  # None until it has been asked twice
    rows: Tensor | None = None  # all that it has answered, (m, n), where inputs and outputs are few


@dataclass(slots=True, kw_only=True)
class Batched:
    """Whether many cotangents may go through backward in one call; its values change."""

    believed: bool = True  # until a call of it fails, or says something else than a single one
    calls: int = 0  # made so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """Backward as a function of its cotangents, ready to be asked many times."""

    problem: Problem
    tape: Tape
    missing: tuple[bool, ...]  # per primal: autograd gave None for a random cotangent
    overwrites: bool  # the cotangent itself, which others may hold as well
    heard: tuple[Tensor, Tensor]  # that cotangent (m,), of which no entry is small, and the answer to it (n,)
    graph: Graph = field(default_factory=Graph)
    batched: Batched = field(default_factory=Batched)


def reverse(problem: Problem, tape: Tape, seed: int) -> Backward:
    """Ask backward for the first time; raises EvaluationError."""
    tape = tape if is_intact(tape) else record(problem)
    cotangent = scattered_from(torch.ones(outputs_in(tape), dtype=torch.float64, device="cpu"), seed)
    given = _given(tape, cotangent)
    before = [each._version for each in given]
    once = _ask(problem, tape, given)
    return Backward(
        problem=problem,
        tape=tape,
        missing=tuple(grad is None for grad in once),
        overwrites=[each._version for each in given] != before,
        heard=(cotangent, _flat(problem, once)),
        graph=Graph(reuse=Reuse.FRESH if problem.fresh_graphs else None),
    )


def row(backward: Backward, cotangent: Tensor) -> Tensor:
    """Return cotangent·A as coordinates of the primals, (n,); `cotangent` is (m,) in output coordinates."""
    found = asked_again(backward, cotangent) if may_be_asked(backward) else None
    if found is not None:
        return found
    tape = record(backward.problem)
    return _flat(backward.problem, _ask(backward.problem, tape, _given(tape, cotangent)))


def may_be_asked(backward: Backward) -> bool:
    """Tell whether the recorded graph serves: where that is not known yet, it is asked again what it has said."""
    if backward.graph.reuse is None:
        backward.graph.reuse = Reuse.SHARED if _repeats(backward) else Reuse.FRESH
    return backward.graph.reuse is Reuse.SHARED and is_intact(backward.tape)


def is_worn(backward: Backward) -> bool:
    """Return True if the recorded graph answered several times and no longer gives its first answer; costs a vjp.

    A backward that reads memory it has freed may answer right a few times. What it said later cannot be trusted.
    """
    if backward.graph.reuse is Reuse.SHARED and is_intact(backward.tape) and not _repeats(backward):
        backward.graph.reuse = Reuse.WORN
    return backward.graph.reuse is Reuse.WORN


def asked_again(backward: Backward, cotangent: Tensor) -> Tensor | None:
    """Return cotangent·A of a graph that need not have been asked twice yet, (n,); None where it does not answer.

    The answer is backward's own if it agrees with what has been `heard`.
    """
    if backward.graph.reuse in (Reuse.FRESH, Reuse.WORN) or not is_intact(backward.tape):
        return None
    try:
        return _flat(backward.problem, _ask(backward.problem, backward.tape, _given(backward.tape, cotangent)))
    except Rejected:
        raise
    except EvaluationError:
        backward.graph.reuse = Reuse.FRESH if backward.graph.reuse is None else Reuse.WORN
        return None


def outputs_in(tape: Tape) -> int:
    """Return how many coordinates the outputs of a tape have."""
    outputs = zip(tape.outputs, tape.shapes, strict=True)
    return sum(shape.numel() * (2 if output.tensor.is_complex() else 1) for output, shape in outputs)


def _repeats(backward: Backward) -> bool:
    """Return True if the recorded graph gives its first answer again, to 1e-12 of each entry."""
    cotangent, expected = backward.heard
    again = asked_again(backward, cotangent)
    return again is not None and (
        torch.equal(again, expected) or torch.allclose(again, expected, rtol=1e-12, atol=0.0, equal_nan=True)
    )


def _given(tape: Tape, cotangent: Tensor) -> tuple[Tensor, ...]:
    """Return a cotangent (m,) as one for each output, which nobody else holds: backward may write to it."""
    outputs = [output.tensor for output in tape.outputs]
    return unflatten(cotangent.to(outputs[0].device, copy=True), outputs)


def _ask(problem: Problem, tape: Tape, cotangents: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    outputs = [output.tensor for output in tape.outputs]
    return pulled_back(problem, tape.leaves, outputs, cotangents, differentiable=False)


def _flat(problem: Problem, grads: Sequence[Tensor | None]) -> Tensor:
    return flatten(
        torch.zeros_like(primal.tensor) if grad is None else _as_primal(grad, primal.tensor)
        for grad, primal in zip(grads, problem.primals, strict=True)
    ).clone()  # a backward may hand out one buffer again and again


def _as_primal(grad: Tensor, primal: Tensor) -> Tensor:
    dense = grad.to_dense() if grad.layout is not torch.strided else grad
    return dense.to(primal.dtype) if dense.dtype != primal.dtype else dense
