"""Derivative at the wrong point: backward uses the values of another tensor, such as the output for the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor

from gradverify.core.backward.vjps import backward_of, flat_vjp
from gradverify.core.model.magnitudes import any_set, finite_size
from gradverify.core.model.tape import record
from gradverify.diagnosis.block.elsewhere import clear_errors, outputs_at, shifted_problem
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.naming.variables import Axis, Variable
from gradverify.diagnosis.tuning import AGREEING, EQUAL_FACTORS
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnosis, Evidence

WRONG_POINT = "wrong-point"
_ONE_IN = 5  # more than one wrong entry in so many has to change when the values are shuffled
_STEP = 1e-4  # of a central difference, times the size of an entry
_MIN_SIZE = 1e-4  # times the mean size: least size of an entry, for its step


def wrong_point(seen: BlockEntries) -> Diagnosis | None:
    """Detect claimed derivatives that are the numeric ones at the values of another tensor."""
    text = "analytic is the derivative at {wrt} = {name}: backward computes with {name} where {wrt} belongs"
    return _first_match(seen, _others(seen), seen.claimed.diagonal(), partial(_numeric_at, seen.block), text)


def wrong_point_in_backward(seen: BlockEntries) -> Diagnosis | None:
    """Detect a backward that is right here if it is called at the values of another tensor."""
    text = "backward at {wrt} = {name} says what is right here: it computes with {wrt} where {name} belongs"
    return _first_match(seen, _others(seen), seen.numeric.diagonal(), partial(_claimed_at, seen.block), text)


def _others(seen: BlockEntries) -> Iterator[Variable]:
    """Yield the other tensors of the input's shape, if the block is elementwise and wrong in a few entries at least."""
    block = seen.block
    if int(seen.wrong.sum()) < AGREEING or not seen.is_elementwise or not any_set(clear_errors(block)):
        return
    yield from (each for each in seen.tensors_along(Axis.INPUT) if not each.where and each.name != block.wrt.name)


def _first_match(
    seen: BlockEntries,
    tensors: Iterable[Variable],
    expected: Tensor,
    derivatives_at: Callable[[Tensor], Tensor | None],
    text: str,
) -> Diagnosis | None:
    """Return the diagnosis for the first tensor at whose values, in their order, the derivatives (k,) are expected."""
    for tensor in tensors:
        found = derivatives_at(tensor.values)
        if found is None or (share := _share(seen, expected, found)) is None:
            continue
        order = torch.randperm(len(tensor.values), generator=torch.Generator().manual_seed(0))
        shuffled = derivatives_at(tensor.values[order.to(tensor.values.device)])
        if shuffled is not None and _depends_on_order(seen, found, shuffled):
            explanation = text.format(wrt=seen.block.wrt.name, name=tensor.name)
            return Diagnosis(cause=WRONG_POINT, explanation=explanation, share=share)
    return None


def _numeric_at(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the derivatives (k,) of an elementwise block at the input `point` (k,), None if forward fails there.

    All entries of the input move together: central differences of two steps, extrapolated to a step of zero.
    """
    step = _STEP * point.abs().clamp(min=_MIN_SIZE * (float(point.abs().mean()) or 1.0))
    differences = []
    for width in (step, step / 2):
        above, below = (outputs_at(evidence, point + each) for each in (width, -width))
        if above is None or below is None:
            return None
        differences.append((above - below) / (2 * width))
    wide, narrow = differences
    return narrow + (narrow - wide) / 3


def _claimed_at(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the claimed derivatives (k,) of an elementwise block at the input `point` (k,), by one vjp.

    None if forward or backward fails there.
    """
    problem = shifted_problem(evidence, point)
    try:
        backward = backward_of(problem, record(problem), 0)
        cotangent = torch.zeros_like(backward.known_vjp[0])
        cotangent[evidence.of.coordinates] = 1.0
        return flat_vjp(backward, cotangent)[evidence.wrt.coordinates].to(evidence.device)
    except EvaluationError:
        return None


def _share(seen: BlockEntries, expected: Tensor, found: Tensor) -> float | None:
    """Return the share of the error explained if `found` equals `expected`, (k,) each; None if they differ."""
    largest = finite_size(expected).amax()
    slack = (EQUAL_FACTORS * expected.abs() + seen.slack.diagonal()).clamp(max=EQUAL_FACTORS * largest)
    undefined = ~torch.isfinite(found)  # outside the domain, or not differentiable
    near = (found - expected).abs() <= slack
    if not bool((near | undefined).all()) or int((near & seen.wrong.diagonal()).sum()) < AGREEING:
        return None
    return seen.explained_share(torch.diag(torch.where(near, seen.claimed.diagonal(), seen.numeric.diagonal())))


def _depends_on_order(seen: BlockEntries, found: Tensor, shuffled: Tensor) -> bool:
    """True if derivatives at wrong entries change when the values are shuffled; False on a single linear branch."""
    wrong = seen.wrong.diagonal()
    changed = (shuffled - found).abs() > EQUAL_FACTORS * found.abs()
    return _ONE_IN * int((changed & wrong).sum()) > int(wrong.sum())
