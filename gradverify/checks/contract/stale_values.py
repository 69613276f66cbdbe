"""GV408: a backward that uses values kept from the first call, so that it is right only at the first point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.contract.directional_difference import directional
from gradverify.checks.contract.subject import Coordinates, Subject, graph_at, outputs_of
from gradverify.checks.contract.wording import failure
from gradverify.core.model.coordinates import flatten
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_RTOL = 1e-5  # tolerance, times the sum of the terms' magnitudes
_MAX_ERROR = 1e-6  # largest error bound of the finite differences, times the same sum; no result above it


def findings(
    subject: Subject, points: Sequence[Tensor], outputs: Coordinates, answer: Coordinates
) -> Iterator[Finding]:
    """GV408: no gradient in `answer`, at `points`, is a stale copy of the one at the subject's point.

    `outputs` is forward's value at `points`. Bitwise equal gradients are suspicious, but linear functions have them
    too. So finite differences by these inputs must confirm them at the subject's point and contradict them at `points`.
    """
    equal = [torch.equal(one, two) for one, two in zip(answer, subject.gradients, strict=True)]
    if not any(equal):
        return
    here = [primal.tensor for primal in subject.primals]
    moves = [point.detach() - start for point, start in zip(points, here, strict=True)]
    step = [move if same else torch.zeros_like(move) for move, same in zip(moves, equal, strict=True)]
    try:
        others = [start if same else point for point, start, same in zip(points, here, equal, strict=True)]
        before = outputs_of(subject.tape if all(equal) else graph_at(subject, others))
    except EvaluationError:
        return
    if [each.shape for each in outputs] != [each.shape for each in before] or _explains(subject, before, outputs, step):
        return
    moved = tuple(replace(primal, tensor=point) for primal, point in zip(subject.primals, points, strict=True))
    there = replace(subject, problem=replace(subject.problem, primals=moved))
    try:
        stale = _is_derivative(subject, step) is True and _is_derivative(there, step) is False
    except EvaluationError:
        return
    if stale:
        names = " and ".join(primal.name for primal, same in zip(subject.primals, equal, strict=True) if same)
        text = f"backward answers at another point what it answered at the first by {names}, where alone differences"
        yield failure("GV408", f"{text} agree with it: values are kept from one call to the next")


def _explains(subject: Subject, before: Coordinates, after: Coordinates, step: Sequence[Tensor]) -> bool:
    """True if the subject's gradient times the step gives the change of the outputs, as for a linear function."""
    change = torch.cat([there - here for there, here in zip(after, before, strict=True)])
    return _agree(subject, step, change, 0.0) is True


def _is_derivative(subject: Subject, step: Sequence[Tensor]) -> bool | None:
    """Compare the subject's gradient along the step with a directional difference; None if that is too inexact."""
    value, bound = directional(subject, step)
    return _agree(subject, step, value, bound)


def _agree(subject: Subject, step: Sequence[Tensor], change: Tensor, bound: float) -> bool | None:
    """Return True if <g, change> = <B(g), step>, None if the error bound of the change is too large or not finite."""
    weighted = flatten(subject.cotangents) * change
    claimed = torch.cat([entry * flatten([move]) for entry, move in zip(subject.gradients, step, strict=True)])
    size = float(weighted.abs().sum() + claimed.abs().sum())
    error = bound * float(flatten(subject.cotangents).abs().sum())
    if not size < float("inf") or error > _MAX_ERROR * size:
        return None
    return bool(abs(float(weighted.sum() - claimed.sum())) <= 10 * error + _RTOL * size)
