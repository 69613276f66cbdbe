"""The Jacobian that backward claims, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.function.analytic import Graph, Reuse, Reverse, outputs_in
from gradverify.core.function.answers import ROUNDING, WORTH, answers
from gradverify.core.function.coordinates import coordinates_in
from gradverify.core.function.flags import all_set
from gradverify.core.function.portion import FEW
from gradverify.core.function.problem import Problem
from gradverify.core.function.tape import Rejected
from gradverify.errors import EvaluationError

_HELD = 2_000_000  # numbers held at a time
_NOT_ONE = 0.25  # a power of two, so that nothing is rounded


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


def asked_with(backward: Reverse) -> float:
    """Return the cotangent that rows are asked with, and divided by.

    That of a single output is not 1: with that one, nobody would see it forgotten.
    """
    return _NOT_ONE if outputs_in(backward.tape) == 1 else 1.0


def _are_few(backward: Reverse) -> bool:
    """Tell whether all rows are soon asked for, and rounding leaves little where they are added up."""
    cotangent, expected = backward.heard
    tensors = [primal.tensor for primal in backward.problem.primals] + [each.tensor for each in backward.tape.outputs]
    wide = all(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)
    return wide and len(cotangent) < WORTH and len(expected) < FEW


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


def _adds_up(cotangent: Tensor, known: Tensor, expected: Tensor) -> bool:
    """Tell whether the rows make up the answer to a cotangent, but for rounding."""
    weights = cotangent.to(known.device).unsqueeze(1)
    terms = known * weights
    return all_set((terms.sum(dim=0) - expected).abs() <= ROUNDING * terms.abs().sum(dim=0))


def _all_rows(backward: Reverse) -> Tensor:
    found = list(_some_rows(backward, range(outputs_in(backward.tape))))
    return torch.cat(found) if found else backward.heard[1].new_zeros(0, _inputs(backward.problem))


def _some_rows(backward: Reverse, places: Sequence[int]) -> Iterator[Tensor]:
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
