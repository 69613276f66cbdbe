"""The Jacobian that backward claims, row by row in reverse mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from gradverify.core.coordinates import coordinates_in, flatten, unflatten
from gradverify.core.problem import Problem
from gradverify.core.tape import Rejected, Tape, record, vjp
from gradverify.errors import EvaluationError


class Reuse(Enum):
    """Whether one recorded graph serves many vjps."""

    SHARED = "shared"
    FRESH = "fresh"  # backward destroys what it saved, or answers differently the second time


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverse:
    """Backward as a function of its cotangents, ready to be asked many times."""

    problem: Problem
    tape: Tape
    reuse: Reuse
    missing: tuple[bool, ...]  # per primal: autograd gave None for a random cotangent


def reverse(problem: Problem, tape: Tape, seed: int) -> Reverse:
    """Find out whether the tape may be reused by asking it the same question twice; raises EvaluationError."""
    generator = torch.Generator().manual_seed(seed)
    size = sum(coordinates_in(output.tensor) for output in tape.outputs)
    cotangent = torch.randn(size, generator=generator, dtype=torch.float64)
    once = _ask(problem, tape, cotangent)
    missing = tuple(grad is None for grad in once)
    expected = _flat(problem, once)
    try:
        again = _flat(problem, _ask(problem, tape, cotangent))
    except Rejected:
        raise
    except EvaluationError:
        return Reverse(problem=problem, tape=record(problem), reuse=Reuse.FRESH, missing=missing)
    same = torch.allclose(again, expected, rtol=1e-12, atol=0.0, equal_nan=True)
    return Reverse(problem=problem, tape=tape, reuse=Reuse.SHARED if same else Reuse.FRESH, missing=missing)


def row(backward: Reverse, cotangent: Tensor) -> Tensor:
    """Return cotangent·A as coordinates of the primals, (n,); `cotangent` is (m,) in output coordinates."""
    tape = backward.tape if backward.reuse is Reuse.SHARED else record(backward.problem)
    return _flat(backward.problem, _ask(backward.problem, tape, cotangent))


def rows(backward: Reverse, places: Sequence[int]) -> Iterator[Tensor]:
    """Yield the rows of A for these output coordinates, each (n,)."""
    size = sum(coordinates_in(output.tensor) for output in backward.tape.outputs)
    for place in places:
        cotangent = torch.zeros(size, dtype=torch.float64)
        cotangent[place] = 1.0
        yield row(backward, cotangent)


def jacobian(backward: Reverse) -> Tensor:
    """Return the whole claimed Jacobian, (m, n), at the cost of m vjps."""
    size = sum(coordinates_in(output.tensor) for output in backward.tape.outputs)
    found = list(rows(backward, range(size)))
    width = sum(coordinates_in(primal.tensor) for primal in backward.problem.primals)
    return torch.stack(found) if found else torch.zeros(0, width, dtype=torch.float64)


def _ask(problem: Problem, tape: Tape, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    outputs = [output.tensor for output in tape.outputs]
    with torch.no_grad():
        return vjp(problem, tape, unflatten(cotangent.to(outputs[0].device), outputs))


def _flat(problem: Problem, grads: Sequence[Tensor | None]) -> Tensor:
    return flatten(
        torch.zeros_like(primal.tensor) if grad is None else _as_primal(grad, primal.tensor)
        for grad, primal in zip(grads, problem.primals, strict=True)
    ).clone()  # a backward may hand out one buffer again and again


def _as_primal(grad: Tensor, primal: Tensor) -> Tensor:
    dense = grad.to_dense() if grad.layout is not torch.strided else grad
    return dense.to(primal.dtype) if dense.dtype != primal.dtype else dense
