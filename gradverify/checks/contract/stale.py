"""GV408: a backward that lives on what the first call left is right there, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.contract.differences import directional
from gradverify.checks.contract.subject import Answer, Subject, outputs_of
from gradverify.checks.contract.wording import accusation
from gradverify.core.model.coordinates import flatten
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_CLOSE = 1e-5  # of the terms of a sum: what differences can tell apart
_STEADY = 1e-6  # an error bound above this part of the outputs' change says that nothing can be said


def findings(subject: Subject, points: Sequence[Tensor], outputs: Answer, answer: Answer) -> Iterator[Finding]:
    """GV408: `answer`, that at `points`, where forward gives `outputs`, is not what the first call's values make of it.

    Suspicious is the answer that is the subject's own to the last bit. It accuses nobody, for a linear function has it
    everywhere, and one that is wrong on purpose may: differences have to confirm it here and to contradict it there.
    """
    if not all(torch.equal(one, two) for one, two in zip(answer, subject.answer, strict=True)):
        return
    step = [point.detach() - primal.tensor for point, primal in zip(points, subject.primals, strict=True)]
    if _explains(subject, outputs, step):
        return
    moved = tuple(replace(primal, tensor=point) for primal, point in zip(subject.primals, points, strict=True))
    there = replace(subject, problem=replace(subject.problem, primals=moved))
    try:
        stale = _is_derivative(subject, step) is True and _is_derivative(there, step) is False
    except EvaluationError:
        return
    if stale:
        text = "backward answers at another point what it answered at the first, where alone differences agree with it"
        yield accusation("GV408", f"{text}: values are kept from one call to the next")


def _explains(subject: Subject, outputs: Answer, step: Sequence[Tensor]) -> bool:
    """Tell whether one and the same linear map takes the step in the inputs to the change in the outputs."""
    pairs = zip(outputs, outputs_of(subject.tape), strict=True)
    change = torch.cat([there - here for there, here in pairs])
    return _agree(subject, step, change, 0.0) is True


def _is_derivative(subject: Subject, step: Sequence[Tensor]) -> bool | None:
    value, bound = directional(subject, step)
    return _agree(subject, step, value, bound)


def _agree(subject: Subject, step: Sequence[Tensor], change: Tensor, bound: float) -> bool | None:
    """Tell whether <g, change> is <B(g), step>, None where the change is not known well enough."""
    weighted = flatten(subject.cotangents) * change
    claimed = torch.cat([entry * flatten([move]) for entry, move in zip(subject.answer, step, strict=True)])
    size = float(weighted.abs().sum() + claimed.abs().sum())
    error = bound * float(flatten(subject.cotangents).abs().sum())
    if not size < float("inf") or error > _STEADY * size:
        return None
    return bool(abs(float(weighted.sum() - claimed.sum())) <= 10 * error + _CLOSE * size)
