"""Derivative at the wrong point: backward uses the values of another tensor, such as the output for the input."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import torch
from torch import Tensor

from gradverify.core.model.magnitudes import any_set
from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.block.shifted_problem import clear_errors, evidence_at
from gradverify.diagnosis.block.structure import is_elementwise
from gradverify.diagnosis.naming.variables import Axis, tensors_along
from gradverify.evidence import Diagnosis, Evidence

WRONG_POINT = "wrong-point"
_SAME = 1e-5  # relative difference of derivatives that count as equal
_CHANGES = 1e-5  # relative difference of derivatives that count as different
_ONE_IN = 5  # more than one wrong entry in so many has to change when the values are shuffled
_MIN_WRONG = 4  # wrong entries that have to agree


def wrong_point(seen: BlockEntries) -> Diagnosis | None:
    """Detect claimed derivatives that are the numeric ones at the values of another tensor."""
    text = "analytic is the derivative at {wrt} = {name}: backward computes with {name} where {wrt} belongs"
    return _first_match(seen, seen.claimed.diagonal(), attrgetter("numeric"), text)


def wrong_point_in_backward(seen: BlockEntries) -> Diagnosis | None:
    """Detect a backward that is right here if it is called at the values of another tensor."""
    text = "backward at {wrt} = {name} says what is right here: it computes with {wrt} where {name} belongs"
    return _first_match(seen, seen.numeric.diagonal(), attrgetter("claimed"), text)


def _first_match(
    seen: BlockEntries, expected: Tensor, side: Callable[[Evidence], Tensor], text: str
) -> Diagnosis | None:
    """Return the diagnosis for the first tensor at whose values, in their order, one side has the expected diagonal."""
    if int(seen.wrong.sum()) < _MIN_WRONG or not is_elementwise(seen) or not any_set(clear_errors(seen.block)):
        return None
    for tensor in tensors_along(seen.block, Axis.INPUT):
        if tensor.where or tensor.name == seen.block.wrt.name:
            continue
        there = evidence_at(seen.block, tensor.values)
        share = None if there is None else _share(seen, expected, side(there).diagonal())
        shuffled = None if share is None else evidence_at(seen.block, _shuffled(tensor.values))
        if there is None or share is None or shuffled is None:
            continue
        if _depends_on_order(seen, side(there).diagonal(), side(shuffled).diagonal()):
            explanation = text.format(wrt=seen.block.wrt.name, name=tensor.name)
            return Diagnosis(cause=WRONG_POINT, explanation=explanation, share=share)
    return None


def _share(seen: BlockEntries, expected: Tensor, found: Tensor) -> float | None:
    """Return the share of the error explained if `found` equals `expected`, (k,) each; None if they differ."""
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


def _depends_on_order(seen: BlockEntries, found: Tensor, shuffled: Tensor) -> bool:
    """True if derivatives at wrong entries change when the values are shuffled; False on a single linear branch."""
    wrong = seen.wrong.diagonal()
    changed = (shuffled - found).abs() > _CHANGES * found.abs()
    return _ONE_IN * int((changed & wrong).sum()) > int(wrong.sum())
