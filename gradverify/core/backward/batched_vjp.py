"""Many vector-Jacobian products at once, and all rows of the Jacobian."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, Graph, Reuse, may_be_asked, outputs_in, row
from gradverify.core.model.coordinates import coordinates_in
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.memory import FEW
from gradverify.core.model.problem import Problem, metered
from gradverify.core.model.tape import Rejected, is_intact
from gradverify.errors import EvaluationError

EVERYTHING = slice(None)  # all inputs
WORTH = 12  # fewer cotangents are asked one by one
ROUNDING = 1e-13  # of the sizes of the terms of a sum
_ULPS = 16.0  # of the inputs' own dtype, where that is coarser
_HELD = 2_000_000  # numbers held at a time
_NOT_ONE = 0.25  # a power of two, so that nothing is rounded


def answers(backward: Backward, cotangents: Tensor, only: slice = EVERYTHING) -> Tensor:
    """Return cotangent·A for each of the cotangents, (K, m) -> (K, n), in one call where backward allows it.

    Of the inputs with coordinates in `only`, where no others are asked for. One answer of every such call, another one
    each time, is compared with that of a call of its own, for all inputs. In the first call, where nobody knows yet
    whether the graph may be asked again, that is what backward has said before.
    """
    if len(cotangents) >= WORTH and backward.batched.believed and backward.graph.reuse is None:
        found = _beside_the_first(backward, cotangents, only)
        if found is not None:
            return found
    if len(cotangents) >= WORTH and may_be_asked(backward) and backward.batched.believed:
        found = _at_once(backward, cotangents, only)
        state = backward.batched
        state.calls += 1
        place = (state.calls * 7919) % len(cotangents)
        if found is not None and torch.equal(found[place], row(backward, cotangents[place])[only]):
            return found
        state.believed = False
    return torch.stack([row(backward, cotangent)[only] for cotangent in cotangents])


def rows(backward: Backward, places: Sequence[int]) -> Iterator[Tensor]:
    """Yield the rows of A for these output coordinates, each (n,)."""
    for some in _some_rows(backward, places):
        yield from some


def jacobian(backward: Backward) -> Tensor:
    """Return the whole claimed Jacobian, (m, n), at the cost of m vjps.

    Where there are few rows the graph is asked for all of them before anyone knows whether it may be asked again: that
    they add up to its first answer says so.
    """
    graph = backward.graph
    if graph.rows is None and graph.reuse is None and _are_few(backward):
        graph.rows = _added_up(backward)
        graph.reuse = Reuse.FRESH if graph.rows is None else Reuse.SHARED
    return _all_rows(backward) if graph.rows is None else graph.rows


def asked_with(backward: Backward) -> float:
    """Return the cotangent that rows are asked with, and divided by.

    That of a single output is not 1: with that one, nobody would see it forgotten.
    """
    return _NOT_ONE if outputs_in(backward.tape) == 1 else 1.0


def _beside_the_first(backward: Backward, cotangents: Tensor, only: slice) -> Tensor | None:
    """Return the answers to these and, in the same call, to the cotangent that backward has answered already.

    Where it says the same again, but for rounding, it may be asked again, and many at once. None where it does not.
    """
    cotangent, expected = backward.heard
    if not is_intact(backward.tape):
        return None
    found = _at_once(backward, torch.cat([cotangents, cotangent.unsqueeze(0)]), only)
    if found is None:
        backward.batched.believed = False
        return None
    every, again, expected = found[:-1], found[-1], expected[only]
    rounding = max(ROUNDING, _ULPS * max(torch.finfo(primal.tensor.dtype).eps for primal in backward.problem.primals))
    same = torch.equal(again, expected) or all_set((again - expected).abs_() <= every.abs().sum(dim=0).mul_(rounding))
    if not same:
        return None
    backward.graph.reuse = Reuse.SHARED
    backward.batched.calls += 1
    return every


def _at_once(backward: Backward, cotangents: Tensor, only: slice) -> Tensor | None:
    """Return the answers of a vectorised backward, None where it cannot be vectorised."""
    tape, primals = backward.tape, [primal.tensor for primal in backward.problem.primals]
    outputs = [output.tensor for output in tape.outputs]
    if (
        backward.problem.accumulates
        or not all(output.requires_grad for output in outputs)
        or any(map(torch.is_complex, (*outputs, *primals)))
    ):
        return None
    asked = _inside(primals, only)
    primals, leaves = [primals[k] for k in asked], [tape.leaves[k] for k in asked]
    pieces = torch.split(cotangents.to(outputs[0].device), [output.numel() for output in outputs], dim=1)
    shaped = [
        piece.reshape(len(cotangents), *output.shape).to(output.dtype)
        for piece, output in zip(pieces, outputs, strict=True)
    ]
    metered(backward.problem).backward += 1
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            grads = torch.autograd.grad(
                outputs, leaves, shaped, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
    except Exception:  # a backward may raise anything: it need not support vmap, nor a second call
        return None
    flat = [
        torch.zeros(len(cotangents), primal.numel(), dtype=torch.float64, device=primal.device)
        if grad is None
        else grad.reshape(len(cotangents), -1).to(primal.dtype).to(torch.float64)
        for grad, primal in zip(grads, primals, strict=True)
    ]
    return torch.cat([each.to(flat[0].device) for each in flat], dim=1) if len(flat) > 1 else flat[0]


def _inside(primals: Sequence[Tensor], only: slice) -> list[int]:
    """Return the numbers of the tensors, all real, whose coordinates are within a range of them."""
    bounds = [0, *accumulate(primal.numel() for primal in primals)]
    first, beyond, _ = only.indices(bounds[-1])
    return [k for k, (start, end) in enumerate(pairwise(bounds)) if first <= start and end <= beyond]


def _are_few(backward: Backward) -> bool:
    """Tell whether all rows are soon asked for, and rounding leaves little where they are added up."""
    cotangent, expected = backward.heard
    tensors = [primal.tensor for primal in backward.problem.primals] + [each.tensor for each in backward.tape.outputs]
    wide = all(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)
    return wide and len(cotangent) < WORTH and len(expected) < FEW


def _added_up(backward: Backward) -> Tensor | None:
    """Return all rows as one graph gives them, None where it does not or they do not make up its first answer."""
    cotangent, expected = backward.heard
    try:
        rows = _all_rows(replace(backward, graph=Graph(reuse=Reuse.SHARED)))
    except Rejected:
        raise
    except EvaluationError:
        return None
    return rows if _adds_up(cotangent, rows, expected) else None


def _adds_up(cotangent: Tensor, known: Tensor, expected: Tensor) -> bool:
    """Tell whether the rows make up the answer to a cotangent, but for rounding."""
    weights = cotangent.to(known.device).unsqueeze(1)
    terms = known * weights
    return all_set((terms.sum(dim=0) - expected).abs() <= ROUNDING * terms.abs().sum(dim=0))


def _all_rows(backward: Backward) -> Tensor:
    found = list(_some_rows(backward, range(outputs_in(backward.tape))))
    return torch.cat(found) if found else backward.heard[1].new_zeros(0, _inputs(backward.problem))


def _some_rows(backward: Backward, places: Sequence[int]) -> Iterator[Tensor]:
    """Yield the rows of A for these output coordinates, as many at a time as may be held; (k, n)."""
    size, cotangent = outputs_in(backward.tape), asked_with(backward)
    most = max(1, _HELD // max(1, size + _inputs(backward.problem)))
    for first in range(0, len(places), most):
        some = torch.tensor(places[first : first + most])
        cotangents = torch.zeros(len(some), size, dtype=torch.float64)
        found = answers(backward, cotangents.scatter_(1, some.unsqueeze(1), cotangent))
        yield found if cotangent == 1.0 else found / cotangent


def _inputs(problem: Problem) -> int:
    return sum(coordinates_in(primal.tensor) for primal in problem.primals)
