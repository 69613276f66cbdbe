"""Backward as a function of the cotangent: single vjps, on one recorded graph as long as it can be reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor

from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.limits import portions
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Rejected, Tape, is_intact, record, vjp_of
from gradverify.errors import EvaluationError

LAST_DIGITS = 2.0**-46  # of a product, and of the terms of a sum: rounding allowed


class Reuse(Enum):
    """Whether one recorded graph can be used for many vjps."""

    SHARED = "shared"
    FRESH = "fresh"  # every vjp needs a new graph: the second vjp on one raises or differs
    WORN = "worn"  # the graph served several vjps, then raised or returned another result


@dataclass(slots=True, kw_only=True)
class Graph:
    """State of the recorded graph; mutable."""

    reuse: Reuse | None = None  # None until a second vjp has been computed on it


@dataclass(slots=True, kw_only=True)
class Batched:
    """State of vectorised vjps, of many cotangents in one call; mutable."""

    trusted: bool = True  # False after one failed or differed from a single vjp
    calls: int = 0  # vectorised calls so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """Backward as a function of the cotangent, with its recorded graph."""

    problem: Problem
    tape: Tape
    missing: tuple[bool, ...]  # per primal: True if autograd returned None for a random cotangent
    overwrites: bool  # True if backward writes to the cotangent, which other nodes may share
    known_vjp: tuple[Tensor, Tensor]  # the random cotangent (m,), without small entries, and its vjp (n,)
    graph: Graph = field(default_factory=Graph)
    batched: Batched = field(default_factory=Batched)


def backward_of(problem: Problem, tape: Tape, seed: int) -> Backward:
    """Return the Backward of a tape, with the vjp of a first random cotangent; raises EvaluationError."""
    tape = tape if is_intact(tape) else record(problem)
    cotangent = random_magnitudes_from(torch.ones(outputs_in(tape), dtype=torch.float64, device="cpu"), seed)
    cotangents = _per_output(tape, cotangent)
    versions = [tensor._version for tensor in cotangents]
    grads = _pull_back(problem, tape, cotangents)
    return Backward(
        problem=problem,
        tape=tape,
        missing=tuple(grad is None for grad in grads),
        overwrites=[tensor._version for tensor in cotangents] != versions,
        known_vjp=(cotangent, flat_gradients(problem, grads)),
        graph=Graph(reuse=Reuse.FRESH if problem.fresh_graphs else None),
    )


def row(backward: Backward, cotangent: Tensor) -> Tensor:
    """Return cotangent·A as coordinates of the primals, (n,); `cotangent` is (m,) in output coordinates."""
    found = vjp_on_recorded_graph(backward, cotangent) if is_reusable(backward) else None
    if found is not None:
        return found
    tape = record(backward.problem)
    return flat_gradients(backward.problem, _pull_back(backward.problem, tape, _per_output(tape, cotangent)))


def is_reusable(backward: Backward) -> bool:
    """Return True if the recorded graph can be reused; if unknown, its first vjp is computed again to find out."""
    if backward.graph.reuse is None:
        backward.graph.reuse = Reuse.SHARED if _repeats(backward) else Reuse.FRESH
    return backward.graph.reuse is Reuse.SHARED and is_intact(backward.tape)


def fails_later(backward: Backward) -> bool:
    """Return True if the recorded graph served several vjps but no longer reproduces its first one; costs a vjp.

    A backward that reads freed memory may be right a few times. Its later results cannot be trusted.
    """
    if backward.graph.reuse is Reuse.SHARED and is_intact(backward.tape) and not _repeats(backward):
        backward.graph.reuse = Reuse.WORN
    return backward.graph.reuse is Reuse.WORN


def vjp_on_recorded_graph(backward: Backward, cotangent: Tensor) -> Tensor | None:
    """Return cotangent·A from the recorded graph even if reuse is untested, (n,); None if it cannot be reused.

    The caller must check an untested result against `known_vjp`.
    """
    if backward.graph.reuse in (Reuse.FRESH, Reuse.WORN) or not is_intact(backward.tape):
        return None
    try:
        return flat_gradients(
            backward.problem, _pull_back(backward.problem, backward.tape, _per_output(backward.tape, cotangent))
        )
    except Rejected:
        raise
    except EvaluationError:
        backward.graph.reuse = Reuse.FRESH if backward.graph.reuse is None else Reuse.WORN
        return None


def first_vjp_is_diagonal(backward: Backward, claimed: Tensor) -> bool:
    """True if backward's first vjp is the claims times its cotangent, up to the last digits.

    The claims (M, m) are the diagonals by M inputs, from the vjp of a cotangent of ones. No second cotangent is needed:
    an off-diagonal entry would have been added with different weights in the two vjps.
    """
    cotangent, vjp = backward.known_vjp
    cotangent, vjps = cotangent.to(claimed.device), vjp.view_as(claimed)
    slices = portions(cotangent)
    return all(_is_product(vjps[:, part], claimed[:, part] * cotangent[part]) for part in slices)


def outputs_in(tape: Tape) -> int:
    """Return the number of coordinates of the outputs of a tape."""
    outputs = zip(tape.outputs, tape.shapes, strict=True)
    return sum(shape.numel() * (2 if output.tensor.is_complex() else 1) for output, shape in outputs)


def flat_gradients(problem: Problem, grads: Sequence[Tensor | None]) -> Tensor:
    """Return the result of a vjp as coordinates of the primals, (n,), zeros for None."""
    return flatten(
        torch.zeros_like(primal.tensor) if grad is None else _as_primal(grad, primal.tensor)
        for grad, primal in zip(grads, problem.primals, strict=True)
    ).clone()  # copied, since backward may return the same buffer at every call


def _repeats(backward: Backward) -> bool:
    """Return True if the recorded graph reproduces its first vjp, to 1e-12 relative in each entry."""
    cotangent, expected = backward.known_vjp
    repeated = vjp_on_recorded_graph(backward, cotangent)
    return repeated is not None and (
        torch.equal(repeated, expected) or torch.allclose(repeated, expected, rtol=1e-12, atol=0.0, equal_nan=True)
    )


def _is_product(vjp: Tensor, product: Tensor) -> bool:
    """True if the vjp is the product up to the last digits."""
    return torch.equal(vjp, product) or all_set((vjp - product).abs_() <= product.abs_().mul_(LAST_DIGITS))


def _per_output(tape: Tape, cotangent: Tensor) -> tuple[Tensor, ...]:
    """Return a cotangent (m,) as one new tensor per output, since backward may overwrite it."""
    outputs = [output.tensor for output in tape.outputs]
    return unflatten(cotangent.to(outputs[0].device, copy=True), outputs)


def _pull_back(problem: Problem, tape: Tape, cotangents: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    outputs = [output.tensor for output in tape.outputs]
    return vjp_of(problem, tape.leaves, outputs, cotangents, differentiable=False)


def _as_primal(grad: Tensor, primal: Tensor) -> Tensor:
    dense = grad.to_dense() if grad.layout is not torch.strided else grad
    return dense.to(primal.dtype) if dense.dtype != primal.dtype else dense
