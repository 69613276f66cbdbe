"""Backward as a function of the cotangent: single vjps, on one recorded graph as long as it can be reused."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from gradverify.arithmetic.narrowing import casts_left_out
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.limits import MIN_BATCHED, chunks, portions
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.problem import Problem, metered
from gradverify.core.model.tape import Rejected, Tape, function_nodes, is_intact, record, vjp_of
from gradverify.core.tuning import LAST_DIGITS, SUM_UNITS
from gradverify.errors import EvaluationError
from gradverify.interception import without_data

EVERYTHING = slice(None)  # all input coordinates
_SINGLE_OUTPUT_COTANGENT = 0.25  # a power of two, so that dividing by it is exact


class Reuse(Enum):
    """Whether one recorded graph can be used for many vjps."""

    SHARED = "shared"
    FRESH = "fresh"  # every vjp needs a new graph: the second vjp on one raises or differs
    WORN = "worn"  # the graph served several vjps, then raised or returned another result


@dataclass(slots=True, kw_only=True)
class Graph:
    """State of the recorded graph; mutable."""

    reuse: Reuse | None = None  # None until a second vjp has been computed on it
    vectorises: bool = True  # False after vjps of many cotangents in one call failed or differed from a single vjp
    vectorised_calls: int = 0  # such calls so far
    is_noisy: bool = False  # True if no two vjps are the same: those in one call are not compared with single ones


@dataclass(frozen=True, kw_only=True)
class Backward:
    """Backward as a function of the cotangent, with its recorded graph."""

    problem: Problem
    tape: Tape
    missing: tuple[bool, ...]  # per primal: True if autograd returned None for a random cotangent
    overwrites: bool  # True if backward writes to the cotangent, which other nodes may share
    known_vjp: tuple[Tensor, Tensor]  # the random cotangent (m,), without small entries, and its vjp (n,)
    graph: Graph = field(default_factory=Graph)

    @cached_property
    def vjp_of_zero(self) -> Tensor:
        """The vjp of a zero cotangent, (n,); computed at the first use, which may raise EvaluationError."""
        return flat_vjp(self, torch.zeros_like(self.known_vjp[0]))


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


def flat_vjp(backward: Backward, cotangent: Tensor) -> Tensor:
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
        cotangents = _per_output(backward.tape, cotangent)
        return flat_gradients(backward.problem, _pull_back(backward.problem, backward.tape, cotangents))
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
    for part in portions(cotangent):
        found, product = vjps[:, part], claimed[:, part] * cotangent[part]
        if not (torch.equal(found, product) or all_set((found - product).abs_() <= product.abs_().mul_(LAST_DIGITS))):
            return False
    return True


def outputs_in(tape: Tape) -> int:
    """Return the number of coordinates of the outputs of a tape."""
    outputs = zip(tape.outputs, tape.shapes, strict=True)
    return sum(shape.numel() * (2 if output.tensor.is_complex() else 1) for output, shape in outputs)


def flat_gradients(problem: Problem, grads: Sequence[Tensor | None]) -> Tensor:
    """Return the result of a vjp as coordinates of the primals, (n,), zeros for None."""
    return flatten(
        torch.zeros_like(primal.tensor) if grad is None else grad.to(primal.tensor.dtype)
        for grad, primal in zip(grads, problem.primals, strict=True)
    ).clone()  # copied, since backward may return the same buffer at every call


def many_vjps(backward: Backward, cotangents: Tensor, only: slice = EVERYTHING) -> Tensor:
    """Return cotangent·A for each of the cotangents, (K, m) -> (K, n), in one call if backward allows it.

    `only` restricts the result to these input coordinates. One row of every vectorised call, another each time, is
    compared with a single vjp. While reuse of the graph is untested, the known first vjp is repeated instead.
    """
    state = backward.graph
    if len(cotangents) >= MIN_BATCHED and state.vectorises and state.reuse is None:
        vjps = _with_known_vjp(backward, cotangents, only)
        if vjps is not None:
            return vjps
    if len(cotangents) >= MIN_BATCHED and is_reusable(backward) and state.vectorises:
        vjps = _vectorised(backward, cotangents, only)
        state.vectorised_calls += 1
        one = (state.vectorised_calls * 7919) % len(cotangents)
        if vjps is not None and (state.is_noisy or torch.equal(vjps[one], flat_vjp(backward, cotangents[one])[only])):
            return vjps
        state.vectorises = False
    return torch.stack([flat_vjp(backward, cotangent)[only] for cotangent in cotangents])


def jacobian(backward: Backward) -> Tensor:
    """Return the analytic Jacobian, (m, n), at the cost of m vjps."""
    scale, (outputs, inputs) = row_cotangent(backward), map(len, backward.known_vjp)
    found = backward.known_vjp[1].new_empty(outputs, inputs)
    for places in chunks(torch.arange(outputs), outputs + inputs):
        cotangents = torch.zeros(len(places), outputs, dtype=torch.float64).scatter_(1, places.unsqueeze(1), scale)
        # Copied: small blocks that stay, between large ones that are freed, would keep later ones from their memory.
        found[int(places[0]) : int(places[-1]) + 1] = many_vjps(backward, cotangents) / scale
    return found


def row_cotangent(backward: Backward) -> float:
    """Return the cotangent entry with which rows are computed; they are divided by it afterwards.

    It is not 1 for a single output, so that a backward that ignores the cotangent is detected.
    """
    return _SINGLE_OUTPUT_COTANGENT if len(backward.known_vjp[0]) == 1 else 1.0


def _repeats(backward: Backward) -> bool:
    """Return True if the recorded graph reproduces its first vjp, to 1e-12 relative in each entry."""
    cotangent, expected = backward.known_vjp
    repeated = vjp_on_recorded_graph(backward, cotangent)
    return repeated is not None and torch.allclose(repeated, expected, rtol=1e-12, atol=0.0, equal_nan=True)


def _per_output(tape: Tape, cotangent: Tensor) -> tuple[Tensor, ...]:
    """Return a cotangent (m,) as one new tensor per output, since backward may overwrite it."""
    outputs = [output.tensor for output in tape.outputs]
    return unflatten(cotangent.to(outputs[0].device, copy=True), outputs)


def _pull_back(problem: Problem, tape: Tape, cotangents: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    outputs = [output.tensor for output in tape.outputs]
    return vjp_of(problem, tape.leaves, outputs, cotangents, differentiable=False)


def _with_known_vjp(backward: Backward, cotangents: Tensor, only: slice) -> Tensor | None:
    """Return cotangent·A for each cotangent, checked by repeating the first vjp in the same call; (K, n).

    If that agrees up to rounding, the graph and vectorised vjps are trusted from then on; else None.
    """
    cotangent, expected = backward.known_vjp
    if not is_intact(backward.tape):
        return None
    found = _vectorised(backward, torch.cat([cotangents, cotangent.unsqueeze(0)]), only)
    if found is None:
        backward.graph.vectorises = False
        return None
    vjps, repeated, expected = found[:-1], found[-1], expected[only]
    rounding = max(LAST_DIGITS, SUM_UNITS * backward.problem.eps)
    agrees = torch.equal(repeated, expected) or all_set(
        (repeated - expected).abs_() <= vjps.abs().sum(dim=0).mul_(rounding)
    )
    if not agrees:
        return None
    backward.graph.reuse = Reuse.SHARED
    backward.graph.vectorised_calls += 1
    return vjps


def _vectorised(backward: Backward, cotangents: Tensor, only: slice) -> Tensor | None:
    """Return cotangent·A for each cotangent from a vectorised backward, None if it cannot be vectorised; (K, n)."""
    tape, primals = backward.tape, [primal.tensor for primal in backward.problem.primals]
    outputs = [output.tensor for output in tape.outputs]
    if (
        backward.problem.accumulates
        or not all(output.requires_grad for output in outputs)
        or any(map(torch.is_complex, (*outputs, *primals)))
    ):
        return None
    chosen = _inside(primals, only)
    primals, leaves = [primals[k] for k in chosen], [tape.leaves[k] for k in chosen]
    pieces = torch.split(cotangents.to(outputs[0].device), [output.numel() for output in outputs], dim=1)
    shaped = [
        piece.reshape(len(cotangents), *output.shape).to(output.dtype)
        for piece, output in zip(pieces, outputs, strict=True)
    ]
    metered(backward.problem).backward += 1
    try:
        with (
            warnings.catch_warnings(),
            torch.no_grad(),
            without_data(function_nodes(outputs)),
            casts_left_out(backward.problem.is_widened),
        ):
            warnings.simplefilter("ignore")
            grads = torch.autograd.grad(
                outputs, leaves, shaped, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
    except Exception:  # a backward may raise anything if it does not support vmap or a second call
        return None
    flat = [
        torch.zeros(len(cotangents), primal.numel(), dtype=torch.float64, device=primal.device)
        if grad is None
        else grad.reshape(len(cotangents), -1).to(primal.dtype).to(torch.float64)
        for grad, primal in zip(grads, primals, strict=True)
    ]
    return torch.cat([grad.to(flat[0].device) for grad in flat], dim=1) if len(flat) > 1 else flat[0]


def _inside(primals: Sequence[Tensor], only: slice) -> list[int]:
    """Return the indices of the tensors, all real, whose coordinates are all within the range `only`."""
    bounds = [0, *accumulate(primal.numel() for primal in primals)]
    first, end_of_range, _ = only.indices(bounds[-1])
    return [k for k, (start, end) in enumerate(pairwise(bounds)) if first <= start and end <= end_of_range]
