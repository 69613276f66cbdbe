"""The Jacobian that backward claims, row by row in reverse mode."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered_from
from gradverify.core.function.coordinates import coordinates_in, flatten, unflatten
from gradverify.core.function.flags import all_set
from gradverify.core.function.portion import FEW
from gradverify.core.function.problem import Problem
from gradverify.core.function.tape import Rejected, Tape, is_intact, pulled_back, record
from gradverify.errors import EvaluationError

_WORTH = 12  # fewer cotangents are asked one by one
_HELD = 2_000_000  # numbers held at a time
_ROUNDING = 1e-13  # of the sizes of the terms of a sum
_ULPS = 16.0  # of the inputs' own dtype, where that is coarser
_NOT_ONE = 0.25  # a power of two, so that nothing is rounded


class Reuse(Enum):
    """Whether one recorded graph serves many vjps."""

    SHARED = "shared"
    FRESH = "fresh"  # backward destroys what it saved, or answers differently the second time


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
class Reverse:
    """Backward as a function of its cotangents, ready to be asked many times."""

    problem: Problem
    tape: Tape
    missing: tuple[bool, ...]  # per primal: autograd gave None for a random cotangent
    heard: tuple[Tensor, Tensor]  # that cotangent (m,), of which no entry is small, and the answer to it (n,)
    graph: Graph = field(default_factory=Graph)
    batched: Batched = field(default_factory=Batched)


def reverse(problem: Problem, tape: Tape, seed: int) -> Reverse:
    """Ask backward for the first time; raises EvaluationError."""
    tape = tape if is_intact(tape) else record(problem)
    cotangent = scattered_from(torch.ones(_outputs(tape), dtype=torch.float64, device="cpu"), seed)
    once = _ask(problem, tape, cotangent)
    missing = tuple(grad is None for grad in once)
    return Reverse(problem=problem, tape=tape, missing=missing, heard=(cotangent, _flat(problem, once)))


def _are_few(backward: Reverse) -> bool:
    """Tell whether all rows are soon asked for, and rounding leaves little where they are added up."""
    cotangent, expected = backward.heard
    tensors = [primal.tensor for primal in backward.problem.primals] + [each.tensor for each in backward.tape.outputs]
    wide = all(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)
    return wide and len(cotangent) < _WORTH and len(expected) < FEW


def _adds_up(cotangent: Tensor, known: Tensor, expected: Tensor) -> bool:
    """Tell whether the rows make up the answer to a cotangent, but for rounding."""
    weights = cotangent.to(known.device).unsqueeze(1)
    terms = known * weights
    return all_set((terms.sum(dim=0) - expected).abs() <= _ROUNDING * terms.abs().sum(dim=0))


def row(backward: Reverse, cotangent: Tensor) -> Tensor:
    """Return cotangent·A as coordinates of the primals, (n,); `cotangent` is (m,) in output coordinates."""
    tape = backward.tape if may_be_asked(backward) else record(backward.problem)
    return _flat(backward.problem, _ask(backward.problem, tape, cotangent))


def may_be_asked(backward: Reverse) -> bool:
    """Tell whether the recorded graph serves: where that is not known yet, it is asked again what it has said."""
    if backward.graph.reuse is None:
        cotangent, expected = backward.heard
        again = asked_again(backward, cotangent)
        same = again is not None and (
            torch.equal(again, expected) or torch.allclose(again, expected, rtol=1e-12, atol=0.0, equal_nan=True)
        )
        backward.graph.reuse = Reuse.SHARED if same else Reuse.FRESH
    return backward.graph.reuse is Reuse.SHARED and is_intact(backward.tape)


def asked_again(backward: Reverse, cotangent: Tensor) -> Tensor | None:
    """Return cotangent·A of a graph that need not have been asked twice yet, (n,); None where it does not answer.

    The answer is backward's own if it agrees with what has been `heard`.
    """
    if backward.graph.reuse is Reuse.FRESH or not is_intact(backward.tape):
        return None
    try:
        return _flat(backward.problem, _ask(backward.problem, backward.tape, cotangent))
    except Rejected:
        raise
    except EvaluationError:
        backward.graph.reuse = Reuse.FRESH
        return None


def answers(backward: Reverse, cotangents: Tensor) -> Tensor:
    """Return cotangent·A for each of the cotangents, (K, m) -> (K, n), in one call where backward allows it.

    One answer of every such call, another one each time, is compared with a call of its own. In the first call, where
    nobody knows yet whether the graph may be asked again, that is what backward has said before.
    """
    if len(cotangents) >= _WORTH and backward.batched.believed and backward.graph.reuse is None:
        found = _beside_the_first(backward, cotangents)
        if found is not None:
            return found
    if len(cotangents) >= _WORTH and may_be_asked(backward) and backward.batched.believed:
        found = _at_once(backward, cotangents)
        state = backward.batched
        state.calls += 1
        place = (state.calls * 7919) % len(cotangents)
        if found is not None and torch.equal(found[place], row(backward, cotangents[place])):
            return found
        state.believed = False
    return torch.stack([row(backward, cotangent) for cotangent in cotangents])


def _beside_the_first(backward: Reverse, cotangents: Tensor) -> Tensor | None:
    """Return the answers to these and, in the same call, to the cotangent that backward has answered already.

    Where it says the same again, but for rounding, it may be asked again, and many at once. None where it does not.
    """
    cotangent, expected = backward.heard
    if not is_intact(backward.tape):
        return None
    found = _at_once(backward, torch.cat([cotangents, cotangent.unsqueeze(0)]))
    if found is None:
        backward.batched.believed = False
        return None
    answers, again = found[:-1], found[-1]
    rounding = max(_ROUNDING, _ULPS * max(torch.finfo(primal.tensor.dtype).eps for primal in backward.problem.primals))
    same = torch.equal(again, expected) or all_set((again - expected).abs_() <= answers.abs().sum(dim=0).mul_(rounding))
    if not same:
        return None
    backward.graph.reuse = Reuse.SHARED
    backward.batched.calls += 1
    return answers


def rows(backward: Reverse, places: Sequence[int]) -> Iterator[Tensor]:
    """Yield the rows of A for these output coordinates, each (n,)."""
    for some in _some_rows(backward, places):
        yield from some


def jacobian(backward: Reverse) -> Tensor:
    """Return the whole claimed Jacobian, (m, n), at the cost of m vjps.

    Where there are few rows the graph is asked for all of them before anyone knows whether it may be asked again: that
    they add up to its first answer says so.
    """
    graph = backward.graph
    if graph.rows is None and graph.reuse is None and _are_few(backward):
        graph.rows = _added_up(backward)
        graph.reuse = Reuse.FRESH if graph.rows is None else Reuse.SHARED
    return _all_rows(backward) if graph.rows is None else graph.rows


def _added_up(backward: Reverse) -> Tensor | None:
    """Return all rows as one graph gives them, None where it does not or they do not make up its first answer."""
    cotangent, expected = backward.heard
    try:
        rows = _all_rows(replace(backward, graph=Graph(reuse=Reuse.SHARED)))
    except Rejected:
        raise
    except EvaluationError:
        return None
    return rows if _adds_up(cotangent, rows, expected) else None


def _all_rows(backward: Reverse) -> Tensor:
    found = list(_some_rows(backward, range(_outputs(backward.tape))))
    return torch.cat(found) if found else torch.zeros(0, _inputs(backward.problem), dtype=torch.float64)


def asked_with(backward: Reverse) -> float:
    """Return the cotangent that rows are asked with, and divided by.

    That of a single output is not 1: with that one, nobody would see it forgotten.
    """
    return _NOT_ONE if _outputs(backward.tape) == 1 else 1.0


def _some_rows(backward: Reverse, places: Sequence[int]) -> Iterator[Tensor]:
    """Yield the rows of A for these output coordinates, as many at a time as may be held; (k, n)."""
    size, cotangent = _outputs(backward.tape), asked_with(backward)
    most = max(1, _HELD // max(1, size + _inputs(backward.problem)))
    for first in range(0, len(places), most):
        some = torch.tensor(places[first : first + most])
        cotangents = torch.zeros(len(some), size, dtype=torch.float64)
        found = answers(backward, cotangents.scatter_(1, some.unsqueeze(1), cotangent))
        yield found if cotangent == 1.0 else found / cotangent


def _outputs(tape: Tape) -> int:
    outputs = zip(tape.outputs, tape.shapes, strict=True)
    return sum(shape.numel() * (2 if output.tensor.is_complex() else 1) for output, shape in outputs)


def _inputs(problem: Problem) -> int:
    return sum(coordinates_in(primal.tensor) for primal in problem.primals)


def _at_once(backward: Reverse, cotangents: Tensor) -> Tensor | None:
    """Return the answers of a vectorised backward, None where it cannot be vectorised."""
    tape, primals = backward.tape, [primal.tensor for primal in backward.problem.primals]
    outputs = [output.tensor for output in tape.outputs]
    if not all(output.requires_grad for output in outputs) or any(map(torch.is_complex, (*outputs, *primals))):
        return None
    pieces = torch.split(cotangents.to(outputs[0].device), [output.numel() for output in outputs], dim=1)
    asked = [
        piece.reshape(len(cotangents), *output.shape).to(output.dtype)
        for piece, output in zip(pieces, outputs, strict=True)
    ]
    backward.problem.meter.backward += 1
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            grads = torch.autograd.grad(
                outputs, tape.leaves, asked, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        return None
    flat = [
        torch.zeros(len(cotangents), primal.numel(), dtype=torch.float64, device=primal.device)
        if grad is None
        else grad.reshape(len(cotangents), -1).to(primal.dtype).to(torch.float64)
        for grad, primal in zip(grads, primals, strict=True)
    ]
    return torch.cat([each.to(flat[0].device) for each in flat], dim=1)


def _ask(problem: Problem, tape: Tape, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    outputs = [output.tensor for output in tape.outputs]
    cotangents = unflatten(cotangent.to(outputs[0].device), outputs)
    return pulled_back(problem, tape.leaves, outputs, cotangents, differentiable=False)


def _flat(problem: Problem, grads: Sequence[Tensor | None]) -> Tensor:
    return flatten(
        torch.zeros_like(primal.tensor) if grad is None else _as_primal(grad, primal.tensor)
        for grad, primal in zip(grads, problem.primals, strict=True)
    ).clone()  # a backward may hand out one buffer again and again


def _as_primal(grad: Tensor, primal: Tensor) -> Tensor:
    dense = grad.to_dense() if grad.layout is not torch.strided else grad
    return dense.to(primal.dtype) if dense.dtype != primal.dtype else dense
