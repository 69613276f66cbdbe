"""Derivative at the wrong point: backward uses the values of another tensor, such as the output for the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gradverify.core.backward.vjps import backward_of, row
from gradverify.core.model.tape import record
from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.block.shifted_problem import outputs_at, problem_at
from gradverify.diagnosis.block.structure import is_elementwise
from gradverify.diagnosis.block.tensors_along_axis import tensors_along
from gradverify.diagnosis.naming.variables import Axis
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnosis, Evidence

_DerivativesAt = Callable[[Evidence, Tensor], Tensor | None]  # input values (k,) -> derivatives (k,)

WRONG_POINT = "wrong-point"
_SAME = 1e-5  # relative difference of derivatives that count as equal
_CHANGES = 1e-5  # relative difference of derivatives that count as different
_ONE_IN = 5  # more than one wrong entry in so many has to change when the values are shuffled
_MIN_WRONG = 4  # wrong entries that have to agree
_STEP = 1e-3  # times an entry's size: leaves a relative error of about 1e-11 with a fourth-order stencil
_MIN_SIZE = 1e-4  # times the mean size: least size of an entry, for its step


def wrong_point(seen: BlockEntries) -> Diagnosis | None:
    """Detect claimed derivatives that are the numeric ones at the values of another tensor."""
    text = "analytic is the derivative at {wrt} = {name}: backward computes with {name} where {wrt} belongs"
    return _first_match(seen, seen.claimed.diagonal(), _numeric_at, text)


def wrong_point_in_backward(seen: BlockEntries) -> Diagnosis | None:
    """Detect a backward that is right here if it is called at the values of another tensor."""
    text = "backward at {wrt} = {name} says what is right here: it computes with {wrt} where {name} belongs"
    return _first_match(seen, seen.numeric.diagonal(), _analytic_at, text)


def _first_match(seen: BlockEntries, expected: Tensor, derivatives_at: _DerivativesAt, text: str) -> Diagnosis | None:
    """Return the diagnosis for the first tensor at whose values, in their order, the derivatives are as expected."""
    for name, point in _points(seen.block) if _may_perturb_together(seen) else ():
        found = derivatives_at(seen.block, point)
        share = _share(seen, expected, found)
        if share is not None and _depends_on_order(seen, found, derivatives_at(seen.block, _shuffled(point))):
            explanation = text.format(wrt=seen.block.wrt.name, name=name)
            return Diagnosis(cause=WRONG_POINT, explanation=explanation, share=share)
    return None


def _may_perturb_together(seen: BlockEntries) -> bool:
    """True if all entries of the input may be perturbed at once: the function is elementwise and has no projection."""
    if seen.block.wrt.step != 1 or seen.block.of.step != 1 or not is_elementwise(seen):
        return False
    wrong = seen.wrong.diagonal()
    return int(wrong.sum()) >= _MIN_WRONG and all(
        primal.project is None for primal in seen.block.backward.problem.primals
    )


def _points(evidence: Evidence) -> Iterator[tuple[str, Tensor]]:
    for tensor in tensors_along(evidence, Axis.INPUT):
        if not tensor.where and tensor.name != evidence.wrt.name:
            yield tensor.name, tensor.values


def _share(seen: BlockEntries, expected: Tensor, found: Tensor | None) -> float | None:
    """Return the share of the error explained if `found` equals `expected`, (k,) each; None if they differ."""
    if found is None:
        return None
    largest = expected.abs().nan_to_num(0.0, 0.0, 0.0).amax()
    slack = (_SAME * expected.abs() + seen.slack.diagonal()).clamp(max=_SAME * largest)
    undefined = ~torch.isfinite(found)  # outside the domain, or not differentiable
    near = (found - expected).abs() <= slack
    if not bool((near | undefined).all()) or int((near & seen.wrong.diagonal()).sum()) < _MIN_WRONG:
        return None
    return explained_share(seen, torch.diag(torch.where(near, seen.claimed.diagonal(), seen.numeric.diagonal())))


def _shuffled(point: Tensor) -> Tensor:
    """Return the values in a random order."""
    order = torch.randperm(len(point), generator=torch.Generator().manual_seed(0))
    return point[order.to(point.device)]


def _depends_on_order(seen: BlockEntries, found: Tensor | None, shuffled: Tensor | None) -> bool:
    """True if derivatives at wrong entries change when the values are shuffled; False on a single linear branch."""
    if found is None or shuffled is None:
        return False
    wrong = seen.wrong.diagonal()
    changed = (shuffled - found).abs() > _CHANGES * found.abs()
    return _ONE_IN * int((changed & wrong).sum()) > int(wrong.sum())


def _numeric_at(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the numeric derivatives (k,) with the input at `point`, (k,); None if forward fails there."""
    step = _STEP * point.abs().clamp(min=_MIN_SIZE * (float(point.abs().mean()) or 1.0))
    values = [outputs_at(evidence, point + k * step) for k in (-2, -1, 1, 2)]
    if any(value is None for value in values):
        return None
    far_below, below, above, far_above = (value for value in values if value is not None)
    return (8 * (above - below) - (far_above - far_below)) / (12 * step)


def _analytic_at(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the vjp (k,) of a cotangent of ones with the input at `point`, (k,); None if backward fails there."""
    problem = problem_at(evidence, point)
    try:
        backward = backward_of(problem, record(problem), 0)
        cotangent = torch.zeros(max(block.stop for block in evidence.outputs), dtype=torch.float64)
        cotangent[evidence.of.coordinates] = 1.0
        return row(backward, cotangent)[evidence.wrt.coordinates].to(evidence.device)
    except EvaluationError:
        return None
