"""The derivative at another point: backward computes with the output what belongs to the input, or the other way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gradverify.core.backward.vjps import reverse, row
from gradverify.core.model.tape import record
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.laid import laid
from gradverify.diagnosis.block.moved import moved, outputs_at
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.block.structure import is_elementwise
from gradverify.diagnosis.naming.variables import Axis
from gradverify.errors import EvaluationError

_Asked = Callable[[Evidence, Tensor], Tensor | None]  # for derivatives at values of the input, (k,)

WRONG_POINT = "wrong-point"
_SAME = 1e-5  # relative
_CHANGES = 1e-5  # relative: derivatives that are not the same
_MOST = 5  # of the wrong entries, one in so many
_SEVERAL = 4  # entries that agree
_STEP = 1e-3  # of each entry's own size: differences of fourth order leave some 1e-11
_LEAST = 1e-4  # of the usual size, for those near zero


def wrong_point(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The claimed derivatives are those at another tensor's values."""
    text = "analytic is the derivative at {wrt} = {name}: backward computes with {name} where {wrt} belongs"
    return _first(evidence, seen, seen.claimed.diagonal(), _slopes, text)


def computed_elsewhere(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Backward, asked at another tensor's values, says what is right here."""
    text = "backward at {wrt} = {name} says what is right here: it computes with {wrt} where {name} belongs"
    return _first(evidence, seen, seen.numeric.diagonal(), _answers, text)


def _first(evidence: Evidence, seen: Seen, expected: Tensor, asked: _Asked, text: str) -> Diagnosis | None:
    """Return the first tensor at whose values, and not in another order, the expected derivatives are found."""
    for name, point in _points(evidence) if _may_be_moved(evidence, seen) else ():
        there = asked(evidence, point)
        share = _agrees(seen, expected, there)
        if share is not None and _goes_by(seen, there, asked(evidence, _elsewhere(point))):
            explanation = text.format(wrt=evidence.wrt.name, name=name)
            return Diagnosis(cause=WRONG_POINT, explanation=explanation, share=share)
    return None


def _may_be_moved(evidence: Evidence, seen: Seen) -> bool:
    """Tell whether all entries of an input may be moved at once: each has an output of its own."""
    if evidence.wrt.step != 1 or evidence.of.step != 1 or not is_elementwise(evidence, seen):
        return False
    wrong = seen.wrong.diagonal()
    return int(wrong.sum()) >= _SEVERAL and all(primal.project is None for primal in evidence.backward.problem.primals)


def _points(evidence: Evidence) -> Iterator[tuple[str, Tensor]]:
    for each in laid(evidence, Axis.INPUT):
        if not each.where and each.name != evidence.wrt.name:
            yield each.name, each.values


def _agrees(seen: Seen, expected: Tensor, found: Tensor | None) -> float | None:
    """Return the share of the error that is explained where two derivatives are the same, None where they are not."""
    if found is None:
        return None
    largest = expected.abs().nan_to_num(0.0, 0.0, 0.0).amax()
    slack = (_SAME * expected.abs() + seen.slack.diagonal()).clamp(max=_SAME * largest)
    lost = ~torch.isfinite(found)  # there the function has no derivative, or differences find none
    near = (found - expected).abs() <= slack
    if not bool((near | lost).all()) or int((near & seen.wrong.diagonal()).sum()) < _SEVERAL:
        return None
    return share_of(seen, torch.diag(torch.where(near, seen.claimed.diagonal(), seen.numeric.diagonal())))


def _elsewhere(point: Tensor) -> Tensor:
    """Return the values in other places."""
    order = torch.randperm(len(point), generator=torch.Generator().manual_seed(0))
    return point[order.to(point.device)]


def _goes_by(seen: Seen, there: Tensor | None, again: Tensor | None) -> bool:
    """Tell whether what is wrong is something else with the values in other places: not so on one straight branch."""
    if there is None or again is None:
        return False
    wrong = seen.wrong.diagonal()
    other = (again - there).abs() > _CHANGES * there.abs()
    return _MOST * int((other & wrong).sum()) > int(wrong.sum())


def _slopes(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the derivatives of all entries with the input somewhere else, None where forward fails there."""
    step = _STEP * point.abs().clamp(min=_LEAST * (float(point.abs().mean()) or 1.0))
    values = [outputs_at(evidence, point + k * step) for k in (-2, -1, 1, 2)]
    if any(value is None for value in values):
        return None
    far_below, below, above, far_above = (value for value in values if value is not None)
    return (8 * (above - below) - (far_above - far_below)) / (12 * step)


def _answers(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return what backward says to a cotangent of ones with the input somewhere else, None where it fails there."""
    problem = moved(evidence, point)
    try:
        backward = reverse(problem, record(problem), 0)
        cotangent = torch.zeros(max(block.stop for block in evidence.outputs), dtype=torch.float64)
        cotangent[evidence.of.coordinates] = 1.0
        return row(backward, cotangent)[evidence.wrt.coordinates].to(evidence.device)
    except EvaluationError:
        return None
