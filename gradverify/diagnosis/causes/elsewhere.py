"""The derivative at another point: backward computes with the output what belongs to the input, or the other way."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.function.analytic import reverse, row
from gradverify.core.function.tape import record
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.laid import laid
from gradverify.diagnosis.block.moved import moved, outputs_at
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.block.structure import is_elementwise
from gradverify.diagnosis.naming.variables import Axis
from gradverify.errors import EvaluationError

WRONG_POINT = "wrong-point"
_SAME = 1e-5  # relative
_EXACTLY = 1e-12  # relative: what backward has multiplied by
_ASIDE = 1.01  # times the values
_CHANGES = 1e-5  # relative: derivatives that go by them
_MOST = 2  # of the wrong entries, one in so many
_SEVERAL = 4  # entries that agree
_STEP = 1e-3  # of each entry's own size: differences of fourth order leave some 1e-11
_LEAST = 1e-4  # of the usual size, for those near zero


def wrong_point(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The claimed derivatives are those at another tensor's values."""
    for name, point in _points(evidence) if _may_be_moved(evidence, seen) else ():
        slopes = _slopes(evidence, point)
        share = _agrees(seen, seen.claimed.diagonal(), slopes)
        if share is not None and _goes_by(seen, slopes, _slopes(evidence, point * _ASIDE)):
            wrt = evidence.wrt.name
            text = f"analytic is the derivative at {wrt} = {name}: backward computes with {name} where {wrt} belongs"
            return Diagnosis(cause=WRONG_POINT, explanation=text, share=share)
    return None


def computed_elsewhere(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Backward, asked at another tensor's values, says what is right here."""
    for name, point in _points(evidence) if _may_be_moved(evidence, seen) else ():
        answers = _answers(evidence, point)
        share = _agrees(seen, seen.numeric.diagonal(), answers)
        if share is not None and _goes_by(seen, answers, _answers(evidence, point * _ASIDE)):
            wrt = evidence.wrt.name
            text = f"backward at {wrt} = {name} says what is right here: it computes with {wrt} where {name} belongs"
            return Diagnosis(cause=WRONG_POINT, explanation=text, share=share)
    return None


def another_tensor(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry that is claimed is what a tensor holds there."""
    live = seen.claimed != 0
    claimed = seen.claimed[live]
    for axis in Axis:
        for each in laid(evidence, axis):
            held = each.spread.expand_as(seen.claimed)
            sign = next((sign for sign in (1.0, -1.0) if _are_same(claimed, sign * held[live])), None)
            share = None if sign is None else share_of(seen, torch.where(live, sign * held, 0.0))
            if share is not None:
                name = f"{each.name}{each.where}"
                text = f"analytic = {'-' if sign == -1.0 else ''}{name}: backward multiplies by {each.name} where"
                return Diagnosis(cause=WRONG_POINT, explanation=f"{text} another tensor belongs", share=share)
    return None


def _are_same(claimed: Tensor, held: Tensor) -> bool:
    near = (claimed - held).abs() <= _EXACTLY * held.abs()
    return bool(near.all()) and int(torch.unique(held).numel()) >= _SEVERAL


def _may_be_moved(evidence: Evidence, seen: Seen) -> bool:
    """Tell whether all entries of an input may be moved at once: each has an output of its own."""
    if evidence.wrt.step != 1 or evidence.of.step != 1 or not is_elementwise(evidence, seen):
        return False
    wrong = seen.claimed.diagonal()[seen.wrong.diagonal()]  # a few slopes that take turns are those of branches
    several = int(torch.unique(wrong).numel()) >= _SEVERAL
    return several and all(primal.project is None for primal in evidence.backward.problem.primals)


def _points(evidence: Evidence) -> Iterator[tuple[str, Tensor]]:
    for each in laid(evidence, Axis.INPUT):
        if not each.where and each.name != evidence.wrt.name:
            yield each.name, each.values


def _agrees(seen: Seen, expected: Tensor, found: Tensor | None) -> float | None:
    """Return the share of the error that is explained where two derivatives are the same, None where they are not."""
    if found is None:
        return None
    largest = expected[torch.isfinite(expected)].abs().amax() if bool(torch.isfinite(expected).any()) else 0.0
    slack = (_SAME * expected.abs() + seen.slack.diagonal()).clamp(max=_SAME * largest)
    lost = ~torch.isfinite(found)  # there the function has no derivative, or differences find none
    near = (found - expected).abs() <= slack
    if not bool((near | lost).all()) or int((near & seen.wrong.diagonal()).sum()) < _SEVERAL:
        return None
    return share_of(seen, torch.diag(torch.where(near, seen.claimed.diagonal(), seen.numeric.diagonal())))


def _goes_by(seen: Seen, there: Tensor | None, aside: Tensor | None) -> bool:
    """Tell whether most of what is wrong would be something else at other values: not so on a straight branch."""
    if there is None or aside is None:
        return False
    wrong = seen.wrong.diagonal()
    other = (aside - there).abs() > _CHANGES * there.abs()
    return _MOST * int((other & wrong).sum()) > int(wrong.sum())


def _slopes(evidence: Evidence, point: Tensor) -> Tensor | None:
    """Return the derivatives of all entries with the input somewhere else, None where forward fails there."""
    step = _STEP * point.abs().clamp(min=_LEAST * float(point.abs().median()))
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
